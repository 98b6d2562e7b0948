"""Whether tokenizer, model, prompts and reward model belong together; stop and pad ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundness_bank as case
import tiny
from tokenizers import Tokenizer, processors
from torch import nn

from kltune.launch.assemble import build_bank, find_inputs, load_ground
from kltune.metrics.record import RewardScale
from kltune.spec.load import load_spec
from kltune.spec.model import ModelSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer.bank import Bank
from kltune.trainer.data import TaskData, encode_all
from kltune.trainer.encode import PromptEncoder
from kltune.trainer.soundness.token_facts import StopFacts, TokenFacts
from kltune.trainer.soundness.tokens import stop_facts, token_facts

KITCHEN = Path(__file__).parents[3] / "sweeps" / "kitchen.yaml"
UNIT = RewardScale(sigma=1.0, std=1.0, mean=0.0, num_groups=1, mean_tokens=1.0)
CHAT = ModelSpec(base="builtin:tiny", rank=4, chat="always")
TEMPLATE = (
    "{% for m in messages %}{{ bos_token + ' ' if loop.first else '' }}w20 {{ m['content'] }} w21 "
    "{% endfor %}{% if add_generation_prompt %}w22{% endif %}"
)


PROMPTS = [
    Prompt(f"p{i}", " ".join(f"w{1 + (i * 5 + j) % 15}" for j in range(2 + i % 4)))
    for i in range(12)
]
"""Without the words that are the unknown token (w0), the BOS or the template's own."""


def with_bos(template: str | None = TEMPLATE) -> Any:
    """A tokenizer that begins a plain text with <bos> (id of w27), and a template that writes it too."""
    tokenizer = tiny.tokenizer()
    tokenizer.bos_token = "w27"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="w27 $A", special_tokens=[("w27", tokenizer.bos_token_id)]
    )
    tokenizer.chat_template = template
    return tokenizer


def bank_with(tokenizer: Any, model: ModelSpec = tiny.MODEL, text: str = "{}") -> Bank:
    """A bank whose prompts were encoded by ``tokenizer``; ``text``: what is made of each prompt's text before."""
    loaded = replace(tiny.loaded(), tokenizer=tokenizer)
    encoder = PromptEncoder(tokenizer, model)
    prompts = [replace(p, text=text.format(p.text)) for p in PROMPTS]
    train, select = encode_all(encoder, prompts[:8]), encode_all(encoder, prompts[8:])
    data = TaskData(train, select, tiny.CountWord("w3"), tiny.CountWord("w4"))
    return Bank(loaded, data, tiny.settings(prompts=8, group_size=4), model, 1)


def tokens_of(bank: Bank, model: ModelSpec = tiny.MODEL) -> TokenFacts:
    bank, drawn, found = case.started(bank)
    return token_facts(bank, model, drawn, found)


def stops_of(bank: Bank) -> StopFacts:
    bank, drawn, _ = case.started(bank)
    return stop_facts(bank, drawn)


def test_a_tokenizer_that_fits() -> None:
    facts = tokens_of(bank_with(tiny.tokenizer()))
    assert (facts.tokenizer_size, facts.highest_id) == (30, 29)
    assert (facts.embedding_rows, facts.model_vocabulary) == (30, 30)
    assert (facts.bos_id, facts.adds_bos, facts.bos_least, facts.bos_most) == (None, False, 0, 0)
    assert (facts.uses_template, facts.template_least, facts.template_most) == (False, None, None)
    assert (facts.text_kept_frac, facts.unknown_frac, facts.round_trip_frac) == (1, 0, 1)
    assert (facts.reward_rows, facts.reward_ids_agree) == (None, None)
    assert facts.special_id_conflicts == ()
    assert facts.num_prompts == 12


def test_one_bos_by_the_tokenizer_alone() -> None:
    facts = tokens_of(bank_with(with_bos(None)))
    assert (facts.adds_bos, facts.bos_least, facts.bos_most) == (True, 1, 1)
    assert facts.bos_id == 29


def test_one_bos_by_the_template_alone() -> None:
    facts = tokens_of(bank_with(with_bos(), CHAT), CHAT)
    assert (facts.bos_least, facts.bos_most) == (1, 1)
    assert facts.uses_template
    assert (facts.template_least, facts.template_most) == (1, 1)


def test_a_double_bos_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Any, prompt: Prompt) -> list[int]:
        messages = [{"role": "user", "content": prompt.text}]
        text = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        return self._tokenizer.encode(text)  # adds the tokenizer's own BOS before the template's

    monkeypatch.setattr(PromptEncoder, "_chat", careless)
    facts = tokens_of(bank_with(with_bos(), CHAT), CHAT)
    assert (facts.bos_least, facts.bos_most) == (2, 2)
    assert facts.template_most == 1


def test_a_bos_in_the_prompts_own_text_shows() -> None:
    facts = tokens_of(bank_with(with_bos(None), text="w27 {}"))
    assert (facts.bos_least, facts.bos_most) == (2, 2)


def test_a_template_that_was_applied_before_shows() -> None:
    # field case D7: what a careless caller hands in is already a whole chat
    bank = bank_with(with_bos(), CHAT, text="w27 w20 {} w21 w22")
    facts = tokens_of(bank, CHAT)
    assert (facts.template_least, facts.template_most) == (2, 2)


def test_a_template_that_was_forgotten_shows() -> None:
    bank = bank_with(with_bos())  # encoded with chat: auto ...
    plain = bank_with(with_bos(), tiny.MODEL.model_copy(update={"chat": "never"}))
    bank.parts = replace(bank.parts, data=plain.parts.data)  # ... but read without it
    assert tokens_of(bank, CHAT).template_most == 0


def test_words_that_the_tokenizer_lacks_show() -> None:
    facts = tokens_of(bank_with(tiny.tokenizer(num_words=10)))
    assert facts.unknown_frac > 0.2
    assert facts.text_kept_frac < 1
    assert (facts.tokenizer_size, facts.model_vocabulary) == (12, 30)


def test_a_tokenizer_that_is_larger_than_the_model_shows() -> None:
    # field case A58: nothing is resized
    facts = tokens_of(bank_with(tiny.tokenizer(num_words=40)))
    assert facts.highest_id == 41
    assert facts.highest_id >= facts.model_vocabulary == facts.embedding_rows == 30


def kitchen(seed: int | None) -> Bank:
    """The built-in model with its own tokenizer, or with one whose words are exchanged."""
    loaded = load_spec(KITCHEN)
    inputs = find_inputs(loaded)
    ground = load_ground(loaded.spec, inputs, None)
    if seed is not None:
        ground.loaded.tokenizer._tokenizer = exchanged(ground.loaded.tokenizer, seed)
        encoder = PromptEncoder(ground.loaded.tokenizer, loaded.spec.model)
        splits = inputs.task.splits
        train, select = encode_all(encoder, splits.train), encode_all(encoder, splits.select)
        ground = replace(ground, data=replace(ground.data, train=train, select=select))
    return build_bank(ground, loaded.spec, UNIT, 1)


def exchanged(tokenizer: Any, seed: int) -> Tokenizer:
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    words = described["model"]["vocab"]
    ordinary = [word for word in words if not word.startswith("<")]
    ids = np.random.default_rng(seed).permutation([words[word] for word in ordinary])
    words.update({word: int(i) for word, i in zip(ordinary, ids, strict=True)})
    return Tokenizer.from_str(json.dumps(described))


def test_to_a_model_with_another_tokenizer_prompts_are_noise() -> None:
    own, other = tokens_of(kitchen(None)), tokens_of(kitchen(1))
    assert own.answer_entropy_token < 0.7 * own.relabelled_entropy_token
    assert other.answer_entropy_token > 0.9 * other.relabelled_entropy_token
    # The learned reward still encodes with the tokenizer that it came with.
    assert own.reward_ids_agree is True
    assert other.reward_ids_agree is False
    assert other.tokenizer_size == own.tokenizer_size, "nothing else tells them apart"


class Learned:
    """As much of a learned reward as the probe looks at."""

    name = "learned"

    def __init__(self, tokenizer: Any, rows: int) -> None:
        self.trunk = tiny.llama(vocabulary=rows)
        self.encode_prompt = PromptEncoder(tokenizer, tiny.MODEL)

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [float(len(sample.token_ids)) for sample in samples]


def test_a_reward_model_that_reads_other_ids_shows() -> None:
    # field case A57
    def judged_by(proxy: Learned) -> TokenFacts:
        bank = bank_with(tiny.tokenizer())
        bank.parts = replace(bank.parts, data=replace(bank.parts.data, proxy=proxy))
        return tokens_of(bank)

    same = judged_by(Learned(tiny.tokenizer(), 30))
    assert (same.reward_rows, same.reward_ids_agree, same.reward_special_ids_agree) == (
        30, True, True,
    )  # fmt: skip
    other = Learned(with_bos(None), 24)
    assert isinstance(other.trunk, nn.Module)
    other.trunk.config.eos_token_id = 7
    wrong = judged_by(other)
    assert (wrong.reward_rows, wrong.reward_ids_agree, wrong.reward_special_ids_agree) == (
        24, False, False,
    )  # fmt: skip


def test_ids_that_tokenizer_and_config_name_differently_are_listed() -> None:
    bank = bank_with(tiny.tokenizer())
    bank.parts.loaded.model.config.eos_token_id = 7
    facts = tokens_of(bank)
    assert facts.special_id_conflicts == ("eos_token_id: tokenizer 1, model 7",)


def test_stop_and_pad_ids_that_fit() -> None:
    facts = stops_of(bank_with(tiny.tokenizer()))
    assert (facts.pad_id, facts.pad_token, facts.has_own_pad) == (0, "<pad>", True)
    assert (facts.pad_is_stop, facts.pad_is_in_vocabulary, facts.pad_in_text_frac) == (
        False, True, 0,
    )  # fmt: skip
    assert facts.pad_is_special
    assert (facts.stop_ids, facts.stop_tokens) == ((1,), ("<eos>",))
    assert (facts.missing_stop_ids, facts.stray_stop_ids) == ((), ())
    assert 0 < facts.ended_frac < 1


def test_a_pad_that_is_an_ordinary_word_shows() -> None:
    bank = bank_with(tiny.tokenizer())
    case.with_loaded(bank, pad_id=7)
    facts = stops_of(bank)
    assert (facts.pad_token, facts.pad_is_stop, facts.pad_is_special) == ("w5", False, False)
    assert facts.pad_in_text_frac > 0


def test_a_pad_beyond_the_vocabulary_shows() -> None:
    bank, drawn, _ = case.started(bank_with(tiny.tokenizer()))
    case.with_loaded(bank, pad_id=30)
    facts = stop_facts(bank, drawn)
    assert not facts.pad_is_in_vocabulary
    assert facts.pad_token == ""


def test_a_stop_token_that_stands_in_for_padding_is_said_so() -> None:
    # field case D13
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = None
    bank = bank_with(tokenizer)
    case.with_loaded(bank, pad_id=1)
    facts = stops_of(bank)
    assert (facts.has_own_pad, facts.pad_is_stop, facts.pad_in_text_frac) == (False, True, 0)


def test_a_stop_id_that_the_sampler_runs_past_shows() -> None:
    bank = bank_with(tiny.tokenizer())
    config = bank.parts.loaded.model.generation_config
    assert config is not None
    config.eos_token_id = [1, 9]
    case.with_loaded(bank, stop_ids=(1, 4))
    facts = stops_of(bank)
    assert facts.missing_stop_ids == (9,)
    assert facts.stray_stop_ids == (4,)


@pytest.mark.parametrize(
    ("template", "copies", "tells_apart"),
    [
        ("{% for m in messages %}w5{% endfor %}", 0, False),
        ("{% for m in messages %}{{ m['content'][:4] }}{% endfor %}", 0, True),
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", 1, True),
        ("{% for m in messages %}{{ m['content'] | upper }}{% endfor %}", 1, True),
        ("{% for m in messages %}{{ m['content'] }} {{ m['content'] }}{% endfor %}", 2, True),
    ],
)
def test_what_a_template_makes_of_the_users_words_shows(
    template: str, copies: int, tells_apart: bool
) -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = template
    facts = tokens_of(bank_with(tokenizer, CHAT), CHAT)
    assert (facts.template_copies, facts.template_tells_apart) == (copies, tells_apart)
    if not tells_apart:
        assert facts.same_ids == facts.num_select == 4
    assert tokens_of(bank_with(tiny.tokenizer())).template_copies is None


def test_a_tokenizer_that_ends_every_prompt_shows() -> None:
    tokenizer = tiny.tokenizer()
    assert stops_of(bank_with(tokenizer)).prompts_ended_frac == 0
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", 1)]
    )
    facts = stops_of(bank_with(tokenizer))
    assert (facts.prompts_ended_frac, facts.tokenizer_ends_texts) == (1, True)
    facts = stops_of(bank_with(tiny.tokenizer(), text="{} <eos>"))
    assert (facts.prompts_ended_frac, facts.tokenizer_ends_texts) == (1, False)


def test_an_unknown_token_that_is_an_end_too_is_not_counted() -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.unk_token = "<eos>"
    assert tokens_of(bank_with(tokenizer, text="{} <eos>")).unknown_frac == 0


def test_the_noise_of_the_surprise_is_measured() -> None:
    assert tokens_of(bank_with(tiny.tokenizer())).relabelled_nll_std > 0
