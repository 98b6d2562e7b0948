"""A finished step's numbers by hand."""

from __future__ import annotations

import math

import pytest
import torch

from kltune.trainer.logprobs import Logprobs
from kltune.trainer.step_metrics import count_nonfinite, exact_kl, shared_seconds

MASK = torch.tensor([[[1, 1, 1], [1, 0, 0]], [[1, 1, 0], [1, 1, 0]]]).bool()


def logprobs(exact: list[list[float]], policy: float = -1.0) -> Logprobs:
    """Slot 0 has ``exact``; slot 1 is broken everywhere."""
    good = torch.tensor(exact)
    bad = torch.full_like(good, math.nan)
    both = torch.stack([good, bad])
    return Logprobs(torch.full_like(both, policy), torch.full_like(both, -1.0), both, both)


def test_exact_kl_is_nats_per_token_and_nats_per_sequence_of_one_slot() -> None:
    result = logprobs([[0.1, 0.2, 0.3], [0.4, 9.0, 9.0]])
    assert exact_kl(result, MASK, 0) == pytest.approx((0.25, 0.5), rel=1e-6)


def test_only_valid_tokens_of_the_slot_are_counted_as_broken() -> None:
    result = logprobs([[0.1, math.nan, math.inf], [0.4, math.nan, math.nan]])
    assert count_nonfinite(result, MASK, 0) == 2
    assert count_nonfinite(result, MASK, 1) == 4
    assert count_nonfinite(logprobs([[0.0] * 3, [0.0, math.nan, 0.0]]), MASK, 0) == 0


@pytest.mark.parametrize("broken", ["policy_KNT", "reference_KNT", "exact_kl_KNT"])
def test_a_token_is_broken_by_any_of_its_numbers(broken: str) -> None:
    fine = torch.zeros(1, 2, 3)
    fields = {name: fine.clone() for name in Logprobs.__dataclass_fields__}
    fields[broken][0, 1, 0] = -math.inf
    assert count_nonfinite(Logprobs(**fields), MASK[:1], 0) == 1


def test_seconds_of_each_phase_are_shared_by_the_slots() -> None:
    seconds = shared_seconds([10.0, 14.0, 15.0, 17.0, 17.5], 2)
    assert seconds == {
        "time/rollout_s": 2.0,
        "time/score_s": 0.5,
        "time/logprobs_s": 1.0,
        "time/update_s": 0.25,
        "time/step_s": 3.75,
    }
