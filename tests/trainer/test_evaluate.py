"""An evaluation by hand, and that it moves nothing."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest
import tiny
import torch
from oracle import Recorder, Texts, push, recorded_bank

from kltune.errors import TrialFault
from kltune.metrics.names import METRICS
from kltune.tasks.protocol import Sample
from kltune.trainer.bank import Bank
from kltune.trainer.micro_batch import MicroBatch


def two_trials(*, compact: bool = True) -> tuple[Bank, Recorder, Recorder]:
    bank, proxy, gold = recorded_bank(3, compact=compact)
    for slot in (0, 2):
        bank.admit(slot, 10 + slot, tiny.trial(seed=slot), None)
        push(bank, slot, seed=slot)
    return bank, proxy, gold


def by_prompt(scores: Sequence[float]) -> list[float]:
    """Means over the two samples of each prompt."""
    return [(a + b) / 2 for a, b in zip(scores[::2], scores[1::2], strict=True)]


def test_gold_and_proxy_are_means_over_prompts_of_means_over_samples() -> None:
    bank, proxy, gold = two_trials()
    metrics = bank.evaluate([0, 2])
    assert [(m.slot, m.trial_number, m.step) for m in metrics] == [(0, 10, 0), (2, 12, 0)]
    assert proxy.calls == gold.calls
    for m, samples in zip(metrics, gold.calls, strict=True):
        assert [s.prompt.id for s in samples] == [
            "p8",
            "p8",
            "p9",
            "p9",
            "p10",
            "p10",
            "p11",
            "p11",
        ]
        for scorer, mean, error, listed in (
            (gold.inner, m.gold, m.gold_se, m.gold_by_prompt),
            (proxy.inner, m.proxy, m.proxy_se, m.proxy_by_prompt),
        ):
            expected = by_prompt(scorer(samples))
            assert listed == pytest.approx(expected, rel=1e-12)
            assert mean == pytest.approx(statistics.mean(expected), rel=1e-12)
            assert error == pytest.approx(statistics.stdev(expected) / 4**0.5, rel=1e-12)
        lengths = [len(s.token_ids) for s in samples]
        assert m.values["eval/completion_mean"] == statistics.mean(lengths)
        assert m.values["eval/truncated_frac"] == sum(not s.ended for s in samples) / 8


def test_kl_is_the_exact_kl_of_the_completions_by_independent_forwards() -> None:
    bank, _, gold = two_trials()
    for m, samples in zip(bank.evaluate([0, 2]), gold.calls, strict=True):
        texts = Texts(bank.parts.stack.flat_KP[m.slot], bank.parts.stack, samples)
        exact = texts.exact_by_text()
        now, ref = (t.detach() for t in texts.sampled())
        assert m.kl_seq == pytest.approx(sum(exact) / 8, rel=1e-5)
        assert m.kl_token == pytest.approx(sum(exact) / sum(texts.lengths), rel=1e-5)
        assert m.values["eval/k1_seq"] == pytest.approx(
            float((now - ref).sum()) / 8, rel=1e-4, abs=1e-5
        )
        k3 = torch.expm1(ref - now) + now - ref
        assert m.values["eval/k3_token"] == pytest.approx(float(k3.mean()), rel=1e-4, abs=1e-5)
        entropy = sum(float(-(p.exp() * p).sum().detach()) for p in texts.policy) / sum(
            texts.lengths
        )
        assert m.values["eval/entropy_token"] == pytest.approx(entropy, rel=1e-5)


def test_at_step_0_kl_is_exactly_zero() -> None:
    bank = tiny.bank(2)
    for slot in range(2):
        bank.admit(slot, slot, tiny.trial(seed=slot), None)
    for m in bank.evaluate([0, 1]):
        assert m.kl_token == m.kl_seq == m.values["eval/k1_seq"] == m.values["eval/k3_token"] == 0.0


@pytest.mark.parametrize("compact", [True, False])
def test_an_evaluation_moves_nothing(compact: bool) -> None:
    bank, _, _ = two_trials(compact=compact)
    bank.train_step()
    parts = bank.parts
    tensors = (
        parts.stack.flat_KP,
        parts.stack.grad_KP,
        parts.optimizer.exp_avg_KP,
        parts.optimizer.exp_avg_sq_KP,
    )
    states = bank._states  # pyright: ignore[reportPrivateUsage]

    def everything() -> tuple[object, ...]:
        weights = {name: t.clone() for name, t in parts.loaded.model.state_dict().items()}
        return (
            [t.clone().tolist() for t in tensors],
            {name: t.tolist() for name, t in weights.items()},
            list(parts.optimizer.num_steps_K),
            {slot: asdict(copy.deepcopy(state)) for slot, state in states.items()},
            {name: module.training for name, module in parts.loaded.model.named_modules()},
            {name: p.requires_grad for name, p in parts.loaded.model.named_parameters()},
            parts.loaded.model.config.to_dict(),
            torch.get_rng_state().tolist(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
            torch.is_grad_enabled(),
            parts.stack.active,
        )

    before = everything()
    bank.evaluate([0, 2])
    assert everything() == before


def test_training_goes_on_as_if_there_had_been_no_evaluation() -> None:
    watched, plain = two_trials()[0], two_trials()[0]
    for _ in range(3):
        watched.evaluate([0, 2])
        watched.train_step()
        plain.train_step()
    assert torch.equal(watched.parts.stack.flat_KP, plain.parts.stack.flat_KP)


def test_the_same_weights_and_seed_give_the_same_completions_at_any_step() -> None:
    bank, _, gold = two_trials()
    first = bank.evaluate([0])
    kept = bank.parts.stack.flat_KP.clone()
    bank.train_step()
    bank.parts.stack.flat_KP.copy_(kept)
    again = bank.evaluate([0])
    assert gold.calls[0] == gold.calls[1]
    assert first[0].gold_by_prompt == again[0].gold_by_prompt
    assert (first[0].step, again[0].step) == (0, 1)


def test_trials_of_one_seed_are_judged_on_the_same_draws_and_of_two_seeds_on_others() -> None:
    bank, _, gold = recorded_bank(3)
    for slot, seed in enumerate((4, 4, 5)):
        bank.admit(slot, slot, tiny.trial(seed=seed), None)
    bank.evaluate([0, 1, 2])
    assert gold.calls[0] == gold.calls[1]
    assert gold.calls[0] != gold.calls[2]


def test_slots_are_judged_alone_as_together() -> None:
    bank, _, gold = two_trials()
    together = bank.evaluate([2, 0])
    alone = bank.evaluate([0]) + bank.evaluate([2])
    assert gold.calls[:2] == gold.calls[2:]
    for one, other in zip(together, alone, strict=True):
        assert one.gold_by_prompt == other.gold_by_prompt
        assert one.kl_seq == pytest.approx(other.kl_seq, rel=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_prompts_judged_a_few_at_a_time_give_the_same_numbers(size: int) -> None:
    bank, _, gold = two_trials()
    whole = bank.evaluate([0, 2])
    bank._evaluation_micro = MicroBatch(4, size)  # pyright: ignore[reportPrivateUsage]
    cut = bank.evaluate([0, 2])
    assert gold.calls[:2] == gold.calls[2:]
    for one, other in zip(whole, cut, strict=True):
        assert one.samples[0].completion == other.samples[0].completion
        for name, value in one.values.items():
            if not name.startswith("time/"):
                assert other.values[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_kept_samples_are_the_first_of_evenly_spread_prompts() -> None:
    bank, _, gold = two_trials()
    (metrics,) = bank.evaluate([0])
    shown = [gold.calls[0][0], gold.calls[0][4]]  # keep 2 of 4 prompts
    exact = Texts(bank.parts.stack.flat_KP[0], bank.parts.stack, shown).exact_by_text()
    for kept, sample, kl_seq in zip(metrics.samples, shown, exact, strict=True):
        assert (kept.prompt_id, kept.prompt, kept.completion) == (
            sample.prompt.id,
            sample.prompt.text,
            sample.text,
        )
        assert (kept.num_tokens, kept.ended) == (len(sample.token_ids), sample.ended)
        assert kept.gold == gold.inner([sample])[0]
        assert kept.kl_seq == pytest.approx(kl_seq, rel=1e-5)


def test_a_bank_that_keeps_all_keeps_every_completion_by_prompt_then_sample() -> None:
    bank, _, gold = two_trials()
    few = bank.evaluate([0])[0]
    seen = list(gold.calls[0])
    bank.parts = replace(bank.parts, settings=replace(bank.parts.settings, keep_all=True))
    (metrics,) = bank.evaluate([0])
    assert [kept.completion for kept in metrics.samples] == [sample.text for sample in seen]
    assert len(metrics.samples) == 8
    assert metrics.gold_by_prompt == few.gold_by_prompt
    assert by_prompt([kept.gold for kept in metrics.samples]) == pytest.approx(few.gold_by_prompt)


def test_a_gold_that_fails_is_the_fault_of_the_slot_it_was_judging() -> None:
    bank, _, gold = two_trials()
    fine = gold.inner

    def failing(samples: Sequence[Sample]) -> Sequence[float]:
        if len(gold.calls) == 2:
            raise ValueError("no judge")
        return fine(samples)

    gold.inner = failing  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TrialFault, match="no judge") as caught:
        bank.evaluate([0, 2])
    assert caught.value.slots == (2,)


def test_a_broken_slot_has_no_kl_and_leaves_the_other_slots_numbers_finite() -> None:
    bank, _, _ = two_trials()
    bank.parts.stack.flat_KP[0] = torch.nan
    broken, fine = bank.evaluate([0, 2])
    assert np.isnan(broken.kl_token)
    assert np.isnan(broken.kl_seq)
    assert all(np.isfinite(v) for v in fine.values.values())


def test_only_registered_metrics_leave_the_evaluation() -> None:
    for name in two_trials()[0].evaluate([0])[0].values:
        assert METRICS[name].scope == "eval", name


def test_nothing_to_judge_is_nothing_judged() -> None:
    assert tiny.bank(2).evaluate([]) == ()


def test_all_golds_judge_the_same_completions() -> None:
    model = tiny.loaded()
    gold, further = Recorder(tiny.CountWord("w4")), Recorder(tiny.CountWord("w5"))
    data = replace(tiny.task_data(model), gold=gold, golds={"tone": further})
    bank = Bank(model, data, tiny.settings(), tiny.MODEL, 1)
    bank.admit(0, 7, tiny.trial(), None)
    push(bank, 0)
    (m,) = bank.evaluate([0])
    assert further.calls == gold.calls
    expected = by_prompt(further.inner(further.calls[0]))
    other = m.others["tone"]
    assert other.by_prompt == pytest.approx(expected, rel=1e-12)
    assert other.mean == pytest.approx(statistics.mean(expected), rel=1e-12)
    assert other.se == pytest.approx(statistics.stdev(expected) / 4**0.5, rel=1e-12)
    scores = further.inner(further.calls[0])
    assert [s.golds for s in m.samples] == [{"tone": scores[0]}, {"tone": scores[4]}]


def test_a_further_gold_must_score_everything() -> None:
    model = tiny.loaded()
    data = replace(tiny.task_data(model), golds={"tone": _Silent()})
    bank = Bank(model, data, tiny.settings(), tiny.MODEL, 1)
    bank.admit(0, 7, tiny.trial(), None)
    with pytest.raises(TrialFault, match="scorer silent returned no score"):
        bank.evaluate([0])


class _Silent:
    name = "silent"

    def __call__(self, samples: Sequence[Sample]) -> list[None]:
        return [None for _ in samples]
