"""A tiny model whose completions can all be looked at, and the same ones drawn: both find the same gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracle
import pytest
import tiny
import torch
from accelerate import Accelerator

from kltune.audit.gram import Gram, GramStream
from kltune.audit.statistics import Alignment, align
from kltune.spec.penalty import Penalty
from kltune.trainer.bank import Bank
from kltune.trainer.data import EncodedPrompts, TaskData
from kltune.trainer.model import freeze
from kltune.trainer.penalty_gradients import FULL, LOCAL, POLICY
from kltune.trainer.probe import (
    ProbeBlock,
    ProbeSettings,
    coefficient,
    is_enumerated,
    num_blocks,
    probe,
)

EVERY = tuple(Penalty)


def small_bank(
    dtype: torch.dtype = torch.float64,
    scale: float = 0.3,
    finetune: str = "lora",
    **trainer: object,
) -> Bank:
    """Six tokens, one of them the stop; float64, so that equal means equal."""
    model = freeze(tiny.llama(vocabulary=6).to(dtype), tiny.tokenizer(4), Accelerator(cpu=True))
    prompts = tiny.encoded(model, [tiny.Prompt(f"p{i}", f"w{i} w{3 - i}") for i in range(4)])
    data = TaskData(prompts, prompts, tiny.CountWord("w3"), tiny.CountWord("w1", name="gold"))
    fields = {"max_new_tokens": 2, "kl": {"top_k": 2}, **trainer}
    spec = tiny.MODEL.model_copy(update={"finetune": finetune})
    bank = Bank(model, data, tiny.settings(**fields), spec, 1)
    bank.parts.stack.reset(0, 0)
    oracle.push(bank, 0, scale=scale)
    return bank


def blocks_of(bank: Bank, **settings: int) -> list[ProbeBlock]:
    fields = {"num_blocks": 12, "prompts_per_block": 4, **settings}
    return list(probe(bank.parts, 0, bank.parts.data.train, EVERY, ProbeSettings(**fields)))


def gram_of(blocks: list[ProbeBlock], *, is_exact: bool) -> Gram:
    stream = GramStream(len(blocks), (FULL, LOCAL), is_exact=is_exact)
    for block in blocks:
        stream.add(block.gradients)
    return stream.finish()


def told(alignment: Alignment) -> tuple[float, float]:
    assert alignment.cosine is not None
    assert alignment.ratio is not None
    return alignment.cosine.value, alignment.ratio.value


@pytest.fixture(scope="module")
def enumerated() -> Gram:
    return gram_of(blocks_of(small_bank()), is_exact=True)


def test_enumerated_penalties_have_cosine_and_length_one_with_what_their_nature_says(
    enumerated: Gram,
) -> None:
    for penalty in Penalty:
        if penalty.nature.gradient == Penalty.K1_REWARD.nature.gradient:
            assert told(align(enumerated, penalty.value, FULL)) == pytest.approx((1, 1), abs=1e-5)
        if penalty.nature.gradient == Penalty.K2_LOSS.nature.gradient:
            assert told(align(enumerated, penalty.value, LOCAL)) == pytest.approx((1, 1), abs=1e-5)


def test_full_fine_tuning_has_the_same_truths_on_every_weight() -> None:
    bank = small_bank(scale=0.05, finetune="full")
    blocks = blocks_of(bank)
    assert len(blocks[0].gradients[FULL]) == bank.parts.stack.num_parameters
    gram = gram_of(blocks, is_exact=True)
    assert told(align(gram, "k1-reward", FULL)) == pytest.approx((1, 1), abs=1e-5)
    assert told(align(gram, "k2-loss", LOCAL)) == pytest.approx((1, 1), abs=1e-5)
    assert align(gram, "k1-loss", FULL).cosine is None


def test_enumerated_k1_in_the_loss_pulls_nowhere(enumerated: Gram) -> None:
    assert align(enumerated, "k1-loss", FULL).cosine is None


def test_the_others_point_elsewhere(enumerated: Gram) -> None:
    cosine, _ = told(align(enumerated, "k2-loss", FULL))
    assert cosine < 0.999
    for penalty in ("k3-loss", "k3-reward", "abs-loss", "exact-reward"):
        aligned = align(enumerated, penalty, FULL)
        assert aligned.missed > 0.02, penalty


def test_weights_of_enumerated_completions_are_their_probabilities() -> None:
    bank = small_bank()
    assert is_enumerated(bank.parts)
    blocks = blocks_of(bank)
    assert len(blocks) == num_blocks(bank.parts, bank.parts.data.train, ProbeSettings(3, 4)) == 4
    for index, block in enumerate(blocks):
        assert block.weight_N is not None
        assert block.weight_N.sum() == pytest.approx(1 / 4, abs=1e-6)
        assert set(block.prompt_N.tolist()) == {index}
        np.testing.assert_allclose(
            block.weight_N * 4,
            np.exp(np.where(block.mask_NT, block.logprobs_NT, 0).sum(1)),
            rtol=1e-6,
        )


def test_drawn_blocks_agree_with_the_enumerated_truth_within_their_errors(enumerated: Gram) -> None:
    bank = small_bank(torch.float32, group_size=16)
    parts = replace(bank.parts, loaded=_pretend_large(bank))
    settings = ProbeSettings(num_blocks=24, prompts_per_block=16)
    gram = gram_of(list(probe(parts, 0, parts.data.train, EVERY, settings)), is_exact=False)
    for penalty in ("k1-reward", "k2-loss", "k3-loss", "exact-reward", "k3-reward"):
        truth, found = align(enumerated, penalty, FULL), align(gram, penalty, FULL)
        assert truth.distance is not None
        assert found.distance is not None
        error = abs(found.distance.value - truth.distance.value)
        assert error < 4 * found.distance.se + 1e-3, penalty
    for reference in (FULL, LOCAL, POLICY):
        assert gram.pair(reference, reference).shape == (24, 24)


def _pretend_large(bank: Bank):
    """The same model with a vocabulary that is too large to be enumerated."""
    loaded = bank.parts.loaded

    class Large(type(loaded)):  # type: ignore[misc]
        @property
        def vocabulary(self) -> int:
            return 10_000

    fields = {name: getattr(loaded, name) for name in loaded.__dataclass_fields__}
    return Large(**fields)


def test_blocks_are_repeatable_and_differ() -> None:
    bank = small_bank(torch.float32)
    parts = replace(bank.parts, loaded=_pretend_large(bank))
    settings = ProbeSettings(num_blocks=2, prompts_per_block=3, seed=5)
    first, second = (
        list(probe(parts, 0, parts.data.train, (Penalty.K2_LOSS,), settings)) for _ in range(2)
    )
    for one, again in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.logprobs_NT, again.logprobs_NT)
        np.testing.assert_array_equal(one.gradients["k2-loss"], again.gradients["k2-loss"])
    assert first[0].gradients["k2-loss"].tolist() != first[1].gradients["k2-loss"].tolist()
    assert first[0].weight_N is None
    assert len(first[0].score_N) == 3 * 4


def test_blocks_of_the_same_prompt_are_other_draws() -> None:
    bank = small_bank(torch.float32)
    parts = replace(bank.parts, loaded=_pretend_large(bank))
    only = EncodedPrompts(parts.data.train.prompts[:1], parts.data.train.ids[:1])
    settings = ProbeSettings(num_blocks=2, prompts_per_block=4)
    first, second = probe(parts, 0, only, (Penalty.K2_LOSS,), settings)
    assert first.prompt_N.tolist() == second.prompt_N.tolist()
    assert not np.array_equal(first.logprobs_NT, second.logprobs_NT)


def test_nothing_is_trained() -> None:
    bank = small_bank()
    before = bank.parts.stack.flat_KP.clone()
    blocks_of(bank)
    assert torch.equal(bank.parts.stack.flat_KP, before)
    assert not bank.parts.stack.grad_KP.any()


def test_another_model_can_be_the_reference() -> None:
    bank = small_bank(scale=0.0)  # the policy is its own base
    other = freeze(tiny.llama(1, vocabulary=6).double(), tiny.tokenizer(4), Accelerator(cpu=True))
    settings = ProbeSettings(num_blocks=1, prompts_per_block=1, has_reward=False, reference=other)
    (own, *_), (foreign, *_) = (
        list(probe(bank.parts, 0, bank.parts.data.train, (Penalty.K2_LOSS,), given))
        for given in (replace(settings, reference=None), settings)
    )
    assert np.abs(own.exact_NT).max() < 1e-9
    assert foreign.exact_NT[foreign.mask_NT].min() > 1e-3
    assert POLICY not in foreign.gradients
    assert np.abs(foreign.gradients[FULL]).max() > 0
    assert np.isnan(foreign.score_N).all()


def test_the_price_of_a_setting_is_told_beside_the_advantages() -> None:
    parts = small_bank(algorithm="grpo").parts  # sigma_R .5
    for penalty in ("k1-reward", "k2-loss", "exact-full"):
        assert coefficient(parts, tiny.trial(beta=0.1, penalty=penalty)) == pytest.approx(0.2)
    parts = small_bank(algorithm="rloo").parts
    assert coefficient(parts, tiny.trial(beta=0.1, penalty="k1-reward")) == pytest.approx(0.1)
    assert coefficient(parts, tiny.trial(beta=0.0, penalty=None)) == 0.0
