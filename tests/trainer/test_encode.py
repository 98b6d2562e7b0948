"""Prompt texts to ids, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from kltune.errors import SpecError
from kltune.spec.model import ModelSpec
from kltune.tasks.protocol import Prompt
from kltune.trainer.encode import PromptEncoder, pad_left, positions_of

HI = Prompt("p0", "w1 w2")
WORDS = ["<pad>", "<eos>", "<bos>", "<user>", "<system>", "<assistant>", "w1", "w2", "w3"]
BOS = WORDS.index("<bos>")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %} <{{ m['role'] }}> {{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %} <assistant>{% endif %}"
)


def with_bos(template: str | None) -> Any:
    """A tokenizer that puts <bos> before every text, as Llama's does."""
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="w1"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", BOS)]
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>"
    )
    made.chat_template = template
    return made


def spec(**fields: object) -> ModelSpec:
    return ModelSpec.model_validate({"base": "x", **fields})


def words(ids: list[int]) -> str:
    return " ".join(WORDS[i] for i in ids)


def test_the_chat_template_is_applied_once_with_exactly_one_bos() -> None:
    ids = PromptEncoder(with_bos(TEMPLATE), spec())(HI)
    assert words(ids) == "<bos> <user> w1 w2 <assistant>"
    assert ids.count(BOS) == 1


def test_the_system_message_comes_first() -> None:
    ids = PromptEncoder(with_bos(TEMPLATE), spec(system="w3"))(HI)
    assert words(ids) == "<bos> <system> w3 <user> w1 w2 <assistant>"


def test_without_a_template_the_tokenizer_adds_its_own_bos() -> None:
    assert words(PromptEncoder(with_bos(None), spec())(HI)) == "<bos> w1 w2"


def test_a_template_is_not_used_where_the_spec_says_never() -> None:
    assert words(PromptEncoder(with_bos(TEMPLATE), spec(chat="never"))(HI)) == "<bos> w1 w2"


@pytest.mark.parametrize("text", ["w1", "w1 w2 w3", "hi"])
def test_token_counts_equal_direct_tokenisation(text: str) -> None:
    tokenizer = with_bos(TEMPLATE)
    ids = PromptEncoder(tokenizer, spec())(Prompt("p", text))
    direct = tokenizer.encode(f"<bos> <user> {text} <assistant>", add_special_tokens=False)
    assert ids == direct
    assert all(type(i) is int for i in ids)


@pytest.mark.parametrize(
    "fields", [{"chat": "always"}, {"system": "w3"}, {"system": "w3", "chat": "never"}]
)
def test_what_needs_a_template_is_refused_without_one(fields: dict[str, str]) -> None:
    with pytest.raises(SpecError, match=r"model\.(chat|system)"):
        PromptEncoder(with_bos(None), spec(**fields))


def test_a_system_message_is_refused_where_the_template_is_switched_off() -> None:
    with pytest.raises(SpecError, match=r"model\.system"):
        PromptEncoder(with_bos(TEMPLATE), spec(system="w3", chat="never"))


def test_a_prompt_that_is_too_long_is_refused_by_its_id_and_length() -> None:
    encoder = PromptEncoder(with_bos(None), spec(), max_tokens=3)
    assert len(encoder(HI)) == 3
    with pytest.raises(SpecError, match=r"'p7' has 4 tokens, more than the 3"):
        encoder(Prompt("p7", "w1 w2 w3"))


def test_a_prompt_without_tokens_is_refused_by_its_id() -> None:
    with pytest.raises(SpecError, match="'p7' has no tokens"):
        PromptEncoder(tiny.tokenizer(), spec())(Prompt("p7", "  "))


def test_padding_goes_to_the_left_and_positions_start_at_the_text() -> None:
    padded = pad_left([[5, 6], [7, 8, 9]], 0, torch.device("cpu"))
    assert padded.ids.tolist() == [[0, 5, 6], [7, 8, 9]]
    assert padded.mask.tolist() == [[0, 1, 1], [1, 1, 1]]
    assert positions_of(padded.mask).tolist() == [[0, 0, 1], [0, 1, 2]]


def test_a_wider_block_only_adds_padding() -> None:
    padded = pad_left([[5, 6]], 0, torch.device("cpu"), width=5)
    assert padded.ids.tolist() == [[0, 0, 0, 5, 6]]
    assert positions_of(padded.mask).tolist() == [[0, 0, 0, 0, 1]]


def test_a_real_token_that_equals_the_pad_id_is_not_masked() -> None:
    padded = pad_left([[0, 5, 0], [7, 8, 9, 4]], 0, torch.device("cpu"))
    assert padded.mask.tolist() == [[0, 1, 1, 1], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ raise_exception('no such role') }}", "TemplateError: no such role"),
        ("{{ messages[3]['content'] }}", "UndefinedError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0]['content'] + 1 }}", "TypeError"),
    ],
)
def test_a_template_that_raises_is_the_models_fault_and_named(template: str, told: str) -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = template
    encoder = PromptEncoder(tokenizer, ModelSpec(base="x"))
    with pytest.raises(SpecError, match=r"model\.chat: ") as caught:
        encoder(Prompt("p", "w1"))
    assert told in str(caught.value)


def talk(*turns: tuple[str, str]) -> Prompt:
    messages = tuple({"role": role, "content": content} for role, content in turns)
    return Prompt("p9", "in words", {}, messages)


def test_a_conversation_goes_through_the_template_once_turn_by_turn() -> None:
    prompt = talk(("user", "w1"), ("assistant", "w2"), ("user", "w3"))
    ids = PromptEncoder(with_bos(TEMPLATE), spec())(prompt)
    assert words(ids) == "<bos> <user> w1 <assistant> w2 <user> w3 <assistant>"


def test_the_specs_system_message_comes_before_a_conversation_but_not_before_its_own() -> None:
    encoder = PromptEncoder(with_bos(TEMPLATE), spec(system="w3"))
    assert words(encoder(talk(("user", "w1")))) == "<bos> <system> w3 <user> w1 <assistant>"
    with pytest.raises(SpecError, match=r"model\.system: prompt 'p9' has a system message"):
        encoder(talk(("system", "w2"), ("user", "w1")))


@pytest.mark.parametrize("fields", [{}, {"chat": "never"}])
def test_a_conversation_without_a_template_is_refused_in_one_sentence(
    fields: dict[str, str],
) -> None:
    template = TEMPLATE if fields else None
    with pytest.raises(SpecError, match="'p9' is a conversation") as caught:
        PromptEncoder(with_bos(template), spec(**fields))(talk(("user", "w1")))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("switch", ["enable_thinking", "thinking"])
def test_thinking_is_switched_by_the_variable_that_the_template_knows(switch: str) -> None:
    template = f"{TEMPLATE}{{% if {switch} is defined and not {switch} %}} w3{{% endif %}}"
    off = PromptEncoder(with_bos(template), spec(thinking="off"))(HI)
    assert words(off) == "<bos> <user> w1 w2 <assistant> w3"
    for way in ("on", "default"):
        ids = PromptEncoder(with_bos(template), spec(thinking=way))(HI)
        assert words(ids) == "<bos> <user> w1 w2 <assistant>"


@pytest.mark.parametrize(
    "template",
    [TEMPLATE, TEMPLATE + "{% set thinking = true %}{# enable_thinking #}", None],
)
def test_thinking_is_refused_where_the_template_has_no_switch(template: str | None) -> None:
    with pytest.raises(SpecError, match=r"model\.thinking: off, but"):
        PromptEncoder(with_bos(template), spec(thinking="off"))


def test_a_switch_is_found_beside_a_tag_of_transformers_own() -> None:
    own = "{% generation %}{% endgeneration %}{{ '' if enable_thinking else 'w3' }}"
    assert PromptEncoder(with_bos(TEMPLATE + own), spec(thinking="on"))


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_a_prompt_or_template_with_an_id_that_the_model_has_not_is_refused(
    template: str | None,
) -> None:
    tokenizer = with_bos(template)
    ids = PromptEncoder(tokenizer, spec())(HI)
    assert PromptEncoder(tokenizer, spec(), known_ids=max(ids) + 1)(HI) == ids
    told = rf"prompt 'p0' needs id {max(ids)} .*has {len(tokenizer)} ids, the model {max(ids)};"
    with pytest.raises(SpecError, match=told):
        PromptEncoder(tokenizer, spec(), known_ids=max(ids))(HI)
