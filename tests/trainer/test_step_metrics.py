"""A finished step's numbers by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import tiny
import torch

from kltune.metrics.names import METRICS
from kltune.trainer.batch import Measured, SlotOutcome
from kltune.trainer.head import Head
from kltune.trainer.logprobs import Hidden, Logprobs
from kltune.trainer.step_metrics import count_nonfinite, per_unit, step_metrics
from kltune.trainer.update import learn

Rows = list[list[float]]
MASK = torch.tensor([[[1, 1, 1], [1, 0, 0]], [[1, 1, 0], [1, 1, 0]]]).bool()
NUMBERS = ("policy_KNT", "reference_KNT", "exact_kl_KNT", "forward_kl_KNT", "entropy_KNT")


def measured(start_kl_KNT: torch.Tensor | None = None, **columns: torch.Tensor) -> Measured:
    """Zeros, but for what is given."""
    fine = torch.zeros(1, 2, 3)
    fields = {name: columns.get(name, fine) for name in NUMBERS}
    logprobs = Logprobs(**fields, top_k_KNT=None, in_top_k_KNT=None)
    hidden = Hidden(torch.zeros(1, 2, 3, 4), Head(torch.zeros(5, 4), None))
    kl_KNT = logprobs.exact_kl_KNT if start_kl_KNT is None else start_kl_KNT
    return Measured(logprobs, hidden, kl_KNT, None)


def test_a_kl_is_nats_per_token_and_nats_per_sequence_of_one_slot() -> None:
    exact_NT = torch.tensor([[0.1, 0.2, 0.3], [0.4, 9.0, 9.0]])
    assert per_unit(exact_NT, MASK[0]) == pytest.approx((0.25, 0.5), rel=1e-6)  # field case A22


def test_only_valid_tokens_of_the_slot_are_counted_as_broken() -> None:
    good = torch.tensor([[0.1, math.nan, math.inf], [0.4, math.nan, math.nan]])
    both = torch.stack([good, torch.full_like(good, math.nan)])
    fine = torch.zeros_like(both)
    columns = dict.fromkeys(NUMBERS, fine) | {"exact_kl_KNT": both}
    result = measured(**columns)
    assert count_nonfinite(result, MASK, 0) == 2
    assert count_nonfinite(result, MASK, 1) == 4


@pytest.mark.parametrize("broken", ["policy_KNT", "reference_KNT", "exact_kl_KNT", "start_kl_KNT"])
def test_a_token_is_broken_by_any_of_its_numbers(broken: str) -> None:
    bad = torch.zeros(1, 2, 3)
    bad[0, 1, 0] = -math.inf
    assert count_nonfinite(measured(**{broken: bad}), MASK[:1], 0) == 1


def numbers(
    policy: Rows, reference: Rows, mask: Rows, ended: tuple[bool, bool] = (True, True),
    proxy: tuple[float, float] = (1.0, 2.0),
) -> dict[str, float]:  # fmt: skip
    """What a step of two completions logs where these are its log-probs, whatever was sampled."""
    bank = tiny.bank(1, prompts=1, group_size=2)
    bank.admit(0, 0, tiny.trial(), None)
    batch = tiny.next_batch(bank)
    learned = learn(bank.parts, batch)
    policy_KNT, reference_KNT = torch.tensor([policy]), torch.tensor([reference])
    mask_KNT, proxy_KN = torch.tensor([mask]).bool(), torch.tensor([proxy])
    given = measured(policy_KNT=policy_KNT, reference_KNT=reference_KNT)
    fine = torch.zeros_like(policy_KNT)
    columns = {n: getattr(given.logprobs, n) if n in NUMBERS[:2] else fine for n in NUMBERS}
    columns["entropy_KNT"] = policy_KNT.abs()
    drawn = replace(
        batch.rollout, mask_KNT=mask_KNT, sampler_logprobs_KNT=policy_KNT,
        ids_KNT=torch.zeros_like(mask_KNT).long(),
        ended_KN=torch.tensor([ended]),
    )  # fmt: skip
    (shaped,) = batch.shaped
    batch = replace(
        batch, rollout=drawn, proxy_KN=proxy_KN,
        shaped=(replace(shaped, is_scored_N=~proxy_KN[0].isnan()),),
    )  # fmt: skip
    logprobs = Logprobs(**columns, top_k_KNT=None, in_top_k_KNT=None)
    learned = replace(learned, measured=replace(given, logprobs=logprobs, start_kl_KNT=fine))
    control = batch.states[0].control
    outcome = SlotOutcome(0, 1, control, control, 0, True, 0.0, 0.0, 0.0, 0.0)
    return step_metrics(bank.parts, batch, learned, outcome, {}).values


def test_each_estimator_is_logged_as_it_is_under_its_own_name() -> None:
    # field cases A1 and A2
    row, ref = [-1.0, -2.0, -0.5], [-1.2, -1.5, -0.6]
    found = numbers([row, row], [ref, ref], [[1, 1, 1]] * 2)
    assert found["kl/k1_token"] == pytest.approx(-0.066667, abs=1e-6)
    assert found["kl/k1_seq"] == pytest.approx(-0.2, abs=1e-6)
    assert found["kl/k2_token"] == pytest.approx(0.05, abs=1e-6)
    assert found["kl/k3_token"] == pytest.approx(0.057430, abs=1e-6)
    assert METRICS["kl/k3_token"].trl == "kl", "TRL's kl is k3"
    assert METRICS["kl/k1_token"].trl is None
    far = numbers([[-300.0] * 3] * 2, [[-1.0] * 3] * 2, [[1, 1, 1]] * 2)
    assert far["kl/k1_seq"] == pytest.approx(-897, rel=1e-6), "no clamp"


@pytest.mark.parametrize("bad", [1e10, math.nan, math.inf, -math.inf])
def test_what_stands_behind_the_mask_reaches_no_metric(bad: float) -> None:
    # field case A7
    found = numbers([[0.0, 0.0]] * 2, [[0.1, bad]] * 2, [[1, 0]] * 2)
    assert found["kl/k3_token"] == pytest.approx(0.0051709, abs=5e-8)
    assert all(math.isfinite(value) for value in found.values())


def test_the_logged_means_of_unequal_lengths_are_two_numbers() -> None:
    # field case A22
    found = numbers([[0.1, 0.2, 0.3], [0.4, 9.0, 9.0]], [[0.0] * 3] * 2, [[1, 1, 1], [1, 0, 0]])
    assert found["kl/k1_token"] == pytest.approx(0.25, rel=1e-6)
    assert found["kl/k1_seq"] == pytest.approx(0.5, rel=1e-6)


def test_no_metric_grows_with_padding() -> None:
    # field case A23
    short = numbers([[0.1, 0.2, 0.7, 0.7]] * 2, [[0.0] * 4] * 2, [[1, 1, 0, 0]] * 2)
    wide = [0.1, 0.2, *[0.7] * 198]
    long = numbers([wide] * 2, [[0.0] * 200] * 2, [[1, 1, *[0] * 198]] * 2)
    assert short["kl/k1_token"] == pytest.approx(0.15, rel=1e-6)
    assert short["train/entropy_token"] == pytest.approx(0.15, rel=1e-6)
    assert long == short


def test_lengths_are_those_of_the_generation_whatever_is_learned_from_it() -> None:
    # field case A31: the truncated completion has no score, so nothing is learned from it
    found = numbers(
        [[-1.0] * 5] * 2, [[-1.0] * 5] * 2, [[1, 1, 1, 0, 0], [1] * 5],
        ended=(True, False), proxy=(1.0, math.nan),
    )  # fmt: skip
    shown = {name: found[f"tokens/{name}"] for name in ("completion_min", "completion_mean")}
    assert shown == {"completion_min": 3, "completion_mean": 4}
    assert found["tokens/completion_max"] == 5
    assert found["tokens/truncated_frac"] == found["train/unscored_frac"] == 0.5


def test_the_largest_token_kl_is_that_of_a_valid_token_of_the_rollout() -> None:
    bank = tiny.bank(1, prompts=1, group_size=2)
    bank.admit(0, 0, tiny.trial(), None)
    batch = tiny.next_batch(bank)
    learned = learn(bank.parts, batch)
    kl_KNT = torch.where(batch.rollout.mask_KNT, 0.25, 50.0)
    kl_KNT[0, 1, 0] = 9.0
    control = batch.states[0].control
    outcome = SlotOutcome(0, 1, control, control, 0, True, 0.0, 0.0, 0.0, 0.0)
    learned = replace(learned, measured=replace(learned.measured, start_kl_KNT=kl_KNT))
    found = step_metrics(bank.parts, batch, learned, outcome, {}).values
    assert found["kl/exact_max_token"] == 9.0
