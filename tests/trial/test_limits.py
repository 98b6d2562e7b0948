"""Limits on golds beside the objective's, by hand."""

from __future__ import annotations

import math

import pytest

from kltune.spec.objective import GoldLimit
from kltune.trial.limits import are_respected, floor_of, slacks, unit_of

START = {"keep": (1.0, 0.8, 0.6)}  # mean 0.8, spread 0.1633


def slack(limit: GoldLimit, *now: float, start: dict[str, tuple[float, ...]] = START) -> float:
    return slacks({"keep": limit}, {"keep": now}, start)["keep"]


def test_an_absolute_floor_is_counted_in_the_spread_over_prompts_at_step_0() -> None:
    floor = GoldLimit(min=0.5)
    assert floor_of(floor, START["keep"]) == 0.5
    assert unit_of(floor, START["keep"]) == pytest.approx(0.1633, abs=1e-4)
    assert slack(floor, 0.4, 0.2) == pytest.approx((0.3 - 0.5) / 0.16330, rel=1e-4)


def test_a_drop_is_counted_from_step_0_in_units_of_what_is_allowed() -> None:
    drop = GoldLimit(max_drop=0.2)
    assert floor_of(drop, START["keep"]) == pytest.approx(0.6)
    assert slack(drop, 0.7) == pytest.approx(0.5)
    assert slack(drop, 0.2) == pytest.approx(-2.0)


def test_a_mean_at_the_limit_respects_it_to_the_last_digit() -> None:
    for start, drop in ((i, k) for i in range(1, 12) for k in range(1, 12)):
        limit, at = GoldLimit(max_drop=drop / 10), {"keep": (start / 10,)}
        assert are_respected({"keep": limit}, {"keep": ((start - drop) / 10,)}, at), (start, drop)
    assert not are_respected({"keep": GoldLimit(min=0.5)}, {"keep": (0.5 - 1e-6,)}, START)


def test_what_is_only_looked_at_forbids_nothing() -> None:
    assert slacks({"keep": GoldLimit()}, {"keep": (-1e9,)}, {}) == {}


@pytest.mark.parametrize("limit", [GoldLimit(min=0.5), GoldLimit(max_drop=0.2)])
def test_what_can_not_be_checked_is_not_allowed(limit: GoldLimit) -> None:
    assert not are_respected({"keep": limit}, {}, START)
    assert not are_respected({"keep": limit}, {"keep": (math.nan,)}, START)
    assert slacks({"keep": limit}, {}, START) == {"keep": -math.inf}


def test_a_drop_from_an_unknown_start_is_not_allowed() -> None:
    assert not are_respected({"keep": GoldLimit(max_drop=9.0)}, {"keep": (5.0,)}, {})
    assert are_respected({"keep": GoldLimit(min=0.5)}, {"keep": (5.0,)}, {})


def test_prompts_that_are_all_alike_count_in_the_golds_own_unit() -> None:
    assert slack(GoldLimit(min=0.5), 0.25, start={"keep": (1.0, 1.0)}) == pytest.approx(-0.25)
