"""A finished step's numbers by hand."""

from __future__ import annotations

import math

import pytest
import torch

from kltune.trainer.batch import Measured
from kltune.trainer.head import Head
from kltune.trainer.logprobs import Hidden, Logprobs
from kltune.trainer.step_metrics import count_nonfinite, per_unit, shared_seconds

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


def test_seconds_of_each_phase_are_shared_by_the_slots() -> None:
    seconds = shared_seconds([10.0, 14.0, 15.0, 17.0, 17.5], 2)
    assert seconds == {
        "time/rollout_s": 2.0,
        "time/score_s": 0.5,
        "time/logprobs_s": 1.0,
        "time/update_s": 0.25,
        "time/step_s": 3.75,
    }
