"""One step against the objective computed a second time (tests/oracle.py), and what a broken slot does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
import tiny
import torch
from oracle import Objective, Recorder, Rule, objective, push, recorded_bank, relative_error

from kltune.errors import TrialFault
from kltune.metrics.names import METRICS
from kltune.metrics.record import StepMetrics
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit, KLUnit
from kltune.tasks.protocol import Sample
from kltune.trainer.bank import Bank

PENALTIES = [None, *Penalty]
ALGORITHMS = ["grpo", "dr-grpo", "rloo", "reinforce", "ppo"]


def one_step(
    penalty: Penalty | None, algorithm: str = "grpo", credit: str | None = None, **trainer: object
) -> tuple[Bank, StepMetrics, Objective]:
    """A step of one slot that has left the reference, and what it should have been."""
    kl = {"top_k": 5, "credit": credit}
    bank, proxy, _ = recorded_bank(1, algorithm=algorithm, kl=kl, **trainer)
    beta = 0.0 if penalty is None else 0.3
    bank.admit(0, 7, tiny.trial(beta=beta, penalty=penalty, seed=3), None)
    push(bank, 0)
    before = bank.parts.stack.flat_KP[0].clone()
    (metrics,) = bank.train_step()
    (samples,) = proxy.calls
    rule = Rule(beta, penalty, algorithm, bank.parts.settings.trainer.credit)
    truth = objective(before, bank.parts.stack, samples, proxy.inner(samples), rule)
    return bank, metrics, truth


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_gradient_is_autograds_of_the_objective_written_out(
    penalty: Penalty | None, compact: bool
) -> None:
    bank, metrics, truth = one_step(penalty, compact=compact)
    assert truth.zero_group_frac < 1, "the case must teach something"
    assert relative_error(bank.parts.stack.grad_KP[0], truth.grad_P) < 1e-5
    assert metrics.values["train/grad_norm"] == pytest.approx(float(truth.grad_P.norm()), rel=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS[1:])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_so_it_is_under_every_algorithm(penalty: Penalty | None, algorithm: str) -> None:
    bank, metrics, truth = one_step(penalty, algorithm)
    assert relative_error(bank.parts.stack.grad_KP[0], truth.grad_P) < 1e-5
    assert metrics.values["train/loss"] == pytest.approx(truth.loss, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("penalty", "algorithm"), list(zip(PENALTIES, cycle(ALGORITHMS))))
def test_so_it_is_by_our_own_forward(penalty: Penalty | None, algorithm: str) -> None:
    bank, metrics, truth = one_step(penalty, algorithm, own_forward=True)
    assert bank.parts.slot_by_slot
    assert relative_error(bank.parts.stack.grad_KP[0], truth.grad_P) < 1e-5
    assert metrics.values["train/loss"] == pytest.approx(truth.loss, rel=1e-4, abs=1e-5)
    assert metrics.values["train/grad_norm"] == pytest.approx(float(truth.grad_P.norm()), rel=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS[:4])
@pytest.mark.parametrize("credit", ["reward-to-go", "length-mean"])
@pytest.mark.parametrize("penalty", [Penalty.K1_REWARD, Penalty.EXACT_FULL])
def test_so_it_is_under_every_way_to_credit_a_kl_in_the_reward(
    penalty: Penalty, credit: str, algorithm: str
) -> None:
    bank, _, truth = one_step(penalty, algorithm, credit)
    assert relative_error(bank.parts.stack.grad_KP[0], truth.grad_P) < 1e-5


def test_the_penalties_have_different_gradients() -> None:
    # equal per sample on policy: k2, k3plus and wk3
    twins = {Penalty.K3PLUS_LOSS, Penalty.WK3_LOSS}
    grads = [one_step(penalty)[2].grad_P for penalty in PENALTIES if penalty not in twins]
    for i, one in enumerate(grads):
        for other in grads[:i]:
            assert relative_error(one, other) > 1e-3


@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_numbers_of_a_step_are_those_of_the_objective(penalty: Penalty | None) -> None:
    _, metrics, truth = one_step(penalty)
    values = metrics.values
    assert truth.kl_token > 0.01, "the case must have KL"
    assert metrics.kl_token == values["kl/exact_token"] == pytest.approx(truth.kl_token, rel=1e-5)
    assert metrics.kl_seq == values["kl/exact_seq"] == pytest.approx(truth.kl_seq, rel=1e-5)
    assert values["kl/k1_seq"] == pytest.approx(truth.k1_seq, rel=1e-4, abs=1e-6)
    assert values["train/loss"] == pytest.approx(truth.loss, rel=1e-4, abs=1e-6)
    assert values["train/loss_policy"] + values["train/loss_kl"] == pytest.approx(
        values["train/loss"], abs=1e-6
    )
    assert values["train/zero_group_frac"] == truth.zero_group_frac
    assert values["train/advantage_std"] == pytest.approx(
        float(torch.tensor(truth.advantages).std()), rel=1e-4
    )
    assert (metrics.slot, metrics.trial_number, metrics.step, metrics.is_finite) == (0, 7, 1, True)


def test_on_policy_the_ratio_is_one() -> None:
    _, metrics, _ = one_step(Penalty.K2_LOSS)
    assert metrics.values["train/clip_frac"] == 0
    assert abs(metrics.values["kl/sampler_token"]) <= 1e-5


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_several_micro_batches_are_one_batch(penalty: Penalty | None, size: int) -> None:
    whole, expected, _ = one_step(penalty)
    cut, got, _ = one_step(penalty, micro_batch=size)
    assert relative_error(cut.parts.stack.grad_KP[0], whole.parts.stack.grad_KP[0]) < 1e-5
    for name, value in expected.values.items():
        if not name.startswith("time/") and name != "train/grad_kl_share":  # of one micro-batch
            assert got.values[name] == pytest.approx(value, rel=1e-4, abs=2e-6), name


def test_a_micro_batch_passes_no_more_rows_at_once() -> None:
    bank, _, _ = recorded_bank(2, micro_batch=2)
    for slot in range(2):
        bank.admit(slot, slot, tiny.trial(), None)
    seen: list[int] = []
    bank.parts.loaded.body.register_forward_pre_hook(
        lambda _m, _a, kwargs: (
            seen.append(kwargs["input_ids"].shape[0]) if torch.is_grad_enabled() else None
        ),
        with_kwargs=True,
    )
    bank.train_step()
    assert set(seen) == {2 * 2}


def test_beta_counts_in_the_unit_of_the_study() -> None:
    def coefficient(unit: BetaUnit, penalty: str) -> float:
        model = tiny.loaded()
        settings = replace(tiny.settings(), beta_unit=unit)
        bank = Bank(model, tiny.task_data(model), settings, tiny.MODEL, 1)
        bank.admit(0, 0, tiny.trial(beta=0.3, penalty=penalty), None)
        return bank.train_step()[0].values["ctrl/coefficient"]

    assert coefficient(BetaUnit.REWARD, "k2-loss") == pytest.approx(0.6)  # sigma_R = 0.5
    assert coefficient(BetaUnit.NATIVE, "k2-loss") == pytest.approx(0.3)
    assert coefficient(BetaUnit.REWARD, "k1-reward") == pytest.approx(0.3)


@pytest.mark.parametrize("unit", list(KLUnit))
def test_the_controller_gets_the_exact_kl_in_the_studys_unit_and_moves_the_next_step(
    unit: KLUnit,
) -> None:
    # field cases A17 and A22
    model = tiny.loaded()
    bank = Bank(model, tiny.task_data(model), replace(tiny.settings(), kl_unit=unit), tiny.MODEL, 1)
    spec = tiny.trial(beta=0.1, controller="proportional", target_kl=1.0, horizon=20)
    bank.admit(0, 0, spec, None)
    push(bank, 0)
    beta = 0.1
    for _ in range(3):
        (metrics,) = bank.train_step()
        kl = metrics.kl_token if unit is KLUnit.TOKEN else metrics.kl_seq
        assert metrics.beta == metrics.values["ctrl/beta"] == pytest.approx(beta, rel=1e-9)
        beta *= 1 + max(-0.2, min(0.2, kl / 1.0 - 1)) * 8 / 20
        assert metrics.values["ctrl/beta_next"] == pytest.approx(beta, rel=1e-9)
        assert metrics.values["ctrl/target"] == 1.0


def test_a_strong_penalty_keeps_kl_below_that_of_a_weak_one() -> None:
    # field case A48
    def final_kl(beta: float) -> float:
        bank = tiny.bank(1, max_new_tokens=4)
        bank.admit(0, 0, tiny.trial(beta=beta, seed=1), None)
        for _ in range(10):
            (metrics,) = bank.train_step()
        return metrics.kl_token

    assert final_kl(1.0) <= final_kl(0.01)


def test_beta_zero_still_measures_kl() -> None:
    bank = tiny.bank(1)
    bank.admit(0, 0, tiny.trial(beta=0.0, penalty=None, seed=1), None)
    first, *_, last = [bank.train_step()[0] for _ in range(4)]
    assert first.kl_token == 0.0
    assert last.kl_token > 0
    assert last.values["ctrl/coefficient"] == last.values["train/loss_kl"] == 0


@pytest.mark.parametrize("compact", [True, False])
def test_a_slot_that_is_not_finite_keeps_its_weights_and_leaves_the_others_finite(
    compact: bool,
) -> None:
    bank, _, _ = recorded_bank(3, compact=compact)
    penalties = (Penalty.K1_REWARD, Penalty.K2_LOSS, Penalty.K3_LOSS)
    for slot, penalty in enumerate(penalties):
        spec = tiny.trial(
            penalty=penalty, seed=slot, controller="proportional", target_kl=0.1, horizon=50
        )
        bank.admit(slot, slot, spec, None)
    bank.parts.stack.flat_KP[1, 5] = math.nan
    before = bank.parts.stack.flat_KP.clone()
    first, broken, last = bank.train_step()
    assert not broken.is_finite
    assert broken.values["train/nonfinite_tokens"] == broken.tokens
    assert math.isnan(broken.kl_token), "a KL that could not be measured is not 0"
    assert broken.values["ctrl/beta_next"] == broken.beta
    assert torch.equal(bank.parts.stack.flat_KP[1].isnan(), before[1].isnan())
    assert torch.equal(bank.parts.stack.flat_KP[1].nan_to_num(), before[1].nan_to_num())
    assert bank.parts.optimizer.num_steps_K == [1, 0, 1]
    for metrics, slot in ((first, 0), (last, 2)):
        assert metrics.is_finite
        finite = {name: v for name, v in metrics.values.items() if not math.isfinite(v)}
        assert not finite
        assert torch.isfinite(bank.parts.stack.grad_KP[slot]).all()
        assert not torch.equal(bank.parts.stack.flat_KP[slot], before[slot])


def test_a_reference_that_is_not_finite_stops_the_slot_even_where_the_gradient_is_finite() -> None:
    bank, _, _ = recorded_bank(1)
    bank.admit(0, 0, tiny.trial(beta=0.0, penalty=None, seed=3), None)
    push(bank, 0)

    def poison(_module: object, _inputs: object, output: Any) -> None:
        if bank.parts.stack.active is None:
            output.last_hidden_state = output.last_hidden_state * math.nan

    bank.parts.loaded.body.register_forward_hook(poison)
    before = bank.parts.stack.flat_KP.clone()
    (metrics,) = bank.train_step()
    assert torch.isfinite(bank.parts.stack.grad_KP).all()
    assert metrics.values["train/nonfinite_tokens"] == metrics.tokens
    assert not metrics.is_finite
    assert torch.equal(bank.parts.stack.flat_KP, before)


def test_only_registered_metrics_leave_the_step() -> None:
    _, metrics, _ = one_step(Penalty.K2_LOSS)
    for name in metrics.values:
        assert METRICS[name].scope == "step", name


def test_lengths_and_tokens_are_those_of_the_samples() -> None:
    bank, proxy, _ = recorded_bank(1)
    bank.admit(0, 0, tiny.trial(seed=2), None)
    (metrics,) = bank.train_step()
    lengths = [len(s.token_ids) for s in proxy.calls[0]]
    ended = [s.ended for s in proxy.calls[0]]
    assert len(lengths) == 8
    assert metrics.tokens == metrics.values["tokens/step"] == sum(lengths)
    assert metrics.values["tokens/completion_mean"] == pytest.approx(sum(lengths) / 8)
    assert metrics.values["tokens/completion_min"] == min(lengths)
    assert metrics.values["tokens/completion_max"] == max(lengths)
    assert metrics.values["tokens/truncated_frac"] == pytest.approx(1 - sum(ended) / 8)
    assert 0 < sum(ended) < 8, "the case must have both"


def test_the_scorer_is_called_once_for_each_slot_with_that_slots_samples() -> None:
    bank, proxy, _ = recorded_bank(3)
    for slot in (0, 2):
        bank.admit(slot, slot, tiny.trial(seed=slot), None)
    bank.train_step()
    assert [len(call) for call in proxy.calls] == [8, 8]
    first = [s.prompt.id for s in proxy.calls[0]]
    assert first == [first[0]] * 4 + [first[4]] * 4


def test_a_scorer_that_fails_for_one_slot_changes_nothing_of_any() -> None:
    bank, proxy, _ = recorded_bank(2)
    for slot in range(2):
        bank.admit(slot, slot, tiny.trial(seed=slot), None)
    bank.train_step()
    good = proxy.inner

    class Failing(Recorder):
        def __call__(self, samples: Sequence[Sample]) -> Sequence[float]:
            self.calls.append(list(samples))
            if len(self.calls) == 2:
                raise ValueError("judge is down")
            return good(samples)

    proxy.inner = failing = Failing()
    before = [t.clone() for t in (bank.parts.stack.flat_KP, bank.parts.optimizer.exp_avg_KP)]
    with pytest.raises(TrialFault, match="judge is down") as caught:
        bank.train_step()
    assert caught.value.slots == (1,)
    assert torch.equal(bank.parts.stack.flat_KP, before[0])
    assert torch.equal(bank.parts.optimizer.exp_avg_KP, before[1])
    shown = [s.token_ids for s in failing.calls[0]]
    proxy.inner = good
    assert [m.step for m in bank.train_step()] == [2, 2]
    assert [s.token_ids for s in proxy.calls[-2]] == shown, (
        "the repeated step draws what it drew before"
    )


def test_the_learning_rate_is_the_trials_own() -> None:
    bank = tiny.bank(2)
    for slot, rate in enumerate((1e-3, 1e-2)):
        bank.admit(slot, slot, tiny.trial(seed=3, learning_rate=rate), None)
        push(bank, slot)
    before = bank.parts.stack.flat_KP.clone()
    metrics = bank.train_step()
    assert [m.values["train/learning_rate"] for m in metrics] == [1e-3, 1e-2]
    moved = (bank.parts.stack.flat_KP - before).norm(dim=1)
    assert float(moved[1] / moved[0]) == pytest.approx(10, rel=1e-3)
