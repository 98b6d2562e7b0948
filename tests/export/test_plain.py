from __future__ import annotations

import json

import pytest
from export_case import SIGMA_R, adaptive, target, winner

from kltune.export.plain import plain
from kltune.spec.trial import KLUnit


def test_everything_is_there_in_every_unit() -> None:
    found = adaptive(beta=0.1, target_kl=6.0, kl_unit=KLUnit.SEQUENCE, kl_limit=12.0, kl_guard=None)
    facts = plain(found, target(found, "trl", batch=8192, mean_tokens=24.0))
    converted = json.loads(json.dumps(facts, allow_nan=False))["converted"]
    assert converted["raw_reward_per_nat_of_sequence_kl"] == 0.1
    assert converted["advantage_units_per_nat"] == pytest.approx(0.1 / SIGMA_R)
    assert converted["final_raw_reward_per_nat_of_sequence_kl"] == pytest.approx(0.3)
    assert converted["target_kl_nats_per_token"] == 0.25
    assert converted["target_kl_nats_per_sequence"] == 6.0
    assert converted["horizon_sequences"] == 81920
    assert converted["kl_limit_nats_per_token"] == 0.5
    assert facts["gradient"] == "reverse KL of the whole sequence"
    assert facts["stop"]["first_step"] == 30


def test_what_can_not_be_known_is_null() -> None:
    found = winner(measured={"sigma_r": None}, kl_limit=None, kl_guard=None)
    converted = plain(found, target(found, "trl"))["converted"]
    assert converted["raw_reward_per_nat_of_sequence_kl"] == 0.1
    assert converted["advantage_units_per_nat"] is None
    assert converted["kl_limit_nats_per_token"] is None
    assert converted["horizon_sequences"] is None


def test_beta_zero_costs_nothing() -> None:
    found = winner(None, beta=0.0)
    assert plain(found, target(found, "trl"))["converted"]["advantage_units_per_nat"] == 0.0


@pytest.mark.parametrize(
    ("unit", "token", "seq"), [(KLUnit.TOKEN, 0.1, 1.2), (KLUnit.SEQUENCE, 0.2, 2.4)]
)
def test_the_kl_to_stop_at_is_that_of_the_targets_length(
    unit: KLUnit, token: float, seq: float
) -> None:
    found = winner(kl_unit=unit)
    stop = plain(found, target(found, "trl", mean_tokens=12.0))["stop"]
    assert (stop["kl_token"], stop["kl_seq"]) == pytest.approx((token, seq))
    assert stop["mean_tokens"] == 12.0
