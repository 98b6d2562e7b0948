"""What a classifier reads: its own template and tokens, whole or cut where the spec says (field case A57)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from reward_case import tokenizer

from kltune.errors import SpecError
from kltune.rewards.classifier_text import ClassifierText
from kltune.spec.rewards import RewardModelSpec
from kltune.tasks.protocol import Prompt, Sample

TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
SAMPLE = Sample(Prompt("p", "a b"), "c d", (9, 9, 9), True)


def config(**fields: Any) -> Any:
    text = SimpleNamespace(**{"max_position_embeddings": 64, "model_type": "x", **fields})
    return SimpleNamespace(get_text_config=lambda: text)


def text_of(chat: str | None = None, positions: int = 64, **fields: Any) -> ClassifierText:
    made = tokenizer(bos=True)
    made.chat_template = chat
    spec = RewardModelSpec.model_validate({"model": "rm", **fields})
    return ClassifierText(spec, made, config(max_position_embeddings=positions), "task.proxy")


def words(made: ClassifierText, sample: Sample = SAMPLE) -> list[str]:
    (ids,) = made.encode([made.write(sample)])
    return tokenizer(bos=True).convert_ids_to_tokens(ids)


def test_it_reads_the_text_and_never_the_policys_token_ids() -> None:
    assert words(text_of(join=" ")) == ["<bos>", "a", "b", "c", "d"]
    assert words(text_of(sees="completion")) == ["<bos>", "c", "d"]


@pytest.mark.parametrize("choice", ["auto", "always"])
def test_a_template_is_applied_once_with_one_bos(choice: str) -> None:
    made = text_of(TEMPLATE, template=choice)
    assert words(made) == ["<bos>", "[user]", "a", "b", "[assistant]", "c", "d"]
    assert words(text_of(TEMPLATE, template="never", join=" ")) == ["<bos>", "a", "b", "c", "d"]


def test_a_conversation_goes_through_the_template_turn_by_turn() -> None:
    turns = (
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    )
    sample = Sample(Prompt("p", "as words", {}, turns), "d", (), True)
    shown = "<bos> [user] a [assistant] b [user] c [assistant] d"
    assert words(text_of(TEMPLATE), sample) == shown.split()


@pytest.mark.parametrize(
    ("side", "kept"), [("left", ["<bos>", "c", "d"]), ("right", ["<bos>", "a", "b"])]
)
def test_a_long_text_loses_the_stated_side_keeps_its_bos_and_is_told_once(
    side: str, kept: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    made = text_of(join=" ", max_tokens=3, truncate=side)
    with caplog.at_level(logging.WARNING):
        assert words(made) == kept
        words(made)
    assert made.truncated == 2
    assert caplog.text.count(f"texts of more than 3 tokens lose their {side} end") == 1


def test_the_limit_is_the_least_of_spec_tokenizer_and_positions() -> None:
    assert text_of(positions=50).max_tokens == 50
    assert text_of(positions=50, max_tokens=7).max_tokens == 7
    spec = RewardModelSpec(model="rm")
    roberta = config(max_position_embeddings=514, model_type="xlm-roberta", pad_token_id=1)
    assert ClassifierText(spec, tokenizer(), roberta, "f").max_tokens == 512


def test_a_template_that_is_not_there_or_refuses_is_named() -> None:
    with pytest.raises(
        SpecError, match=r"task\.proxy\.template: always, but .* has no chat template"
    ):
        text_of(template="always")
    refusing = text_of("{{ raise_exception('no system here') }}")
    with pytest.raises(
        SpecError, match=r"refused a prompt and its answer: .*no system here; set template: never"
    ):
        refusing.write(SAMPLE)
