from __future__ import annotations

import math
from typing import Any

import pytest

from kltune.errors import SpecError
from kltune.explain.controller import (
    ControllerQuestion,
    Liveliness,
    explain_controller,
    run_factor,
    speed,
)


@pytest.mark.parametrize(
    ("rows", "horizon", "factor", "doubling"),
    [
        (64, 10_000, 1.0013, 542),
        (256, 10_000, 1.0051, 136),
        (512, 10_000, 1.0102, 68),
        (1024, 10_000, 1.0205, 34),
        (1024, 5_000, 1.041, 17),
        (1024, 20_000, 1.0102, 68),
    ],
)
def test_the_speeds_of_the_reference(
    rows: int, horizon: float, factor: float, doubling: int
) -> None:
    # kl-reference.md §2.1
    found = speed(rows, horizon, steps=80)
    assert found.factor == pytest.approx(factor, abs=6e-5)
    assert found.steps_to_double == doubling


@pytest.mark.parametrize(("kl", "beta"), [(9, 0.202048), (6.6, 0.201024), (6, 0.2), (0, 0.197952)])
def test_the_check_vectors_of_the_reference(kl: float, beta: float) -> None:
    facts = explain_controller(
        ControllerQuestion(6, "sequence", kl, horizon=10_000, rows=512, beta=0.2)
    )
    assert facts.beta_next == pytest.approx(beta, abs=5e-7)


def test_a_negative_kl_saturates_the_error() -> None:
    facts = explain_controller(ControllerQuestion(kl=-3.0))
    assert (facts.error, facts.raw_error) == (-0.2, pytest.approx(-31))


def test_what_beta_can_do_in_the_run() -> None:
    facts = explain_controller(ControllerQuestion())
    assert facts.gain == 0.0064
    assert facts.most == pytest.approx(0.1 * (1 + 0.2 * 0.0064) ** 80)
    assert facts.least == pytest.approx(0.1 * (1 - 0.2 * 0.0064) ** 80)


@pytest.mark.parametrize(
    ("changes", "liveliness"),
    [
        ({"steps": 40}, Liveliness.INERT),
        ({"horizon": 640}, Liveliness.LIVE),
        ({"horizon": 64}, Liveliness.LIVE),
        ({"horizon": 63}, Liveliness.FAST),
        ({"horizon": 12.9}, Liveliness.FAST),
        ({"horizon": 12.8}, Liveliness.BROKEN),
        ({"horizon": 1, "beta": 0.0}, Liveliness.BROKEN),
        ({"beta": 0.0}, Liveliness.STUCK),
    ],
)
def test_inert_live_fast_and_stuck(changes: dict[str, Any], liveliness: Liveliness) -> None:
    assert explain_controller(ControllerQuestion(**changes)).liveliness is liveliness


def test_the_live_horizon_is_where_inert_begins() -> None:
    bound = explain_controller(ControllerQuestion()).live_horizon
    below, above = (ControllerQuestion(horizon=bound * x) for x in (0.999, 1.001))
    assert explain_controller(below).liveliness is Liveliness.LIVE
    assert explain_controller(above).liveliness is Liveliness.INERT


def test_the_target_in_the_other_unit() -> None:
    facts = explain_controller(ControllerQuestion(target=6, unit="sequence", tokens=24))
    assert (facts.target_other_unit, facts.other_unit) == (0.25, "token")
    assert explain_controller(ControllerQuestion(tokens=40)).target_other_unit == pytest.approx(4)


def test_the_speeds_hold_the_asked_horizon_once() -> None:
    for horizon in (10_000.0, 777.0):
        speeds = explain_controller(ControllerQuestion(horizon=horizon)).speeds
        assert [s.horizon for s in speeds if s.is_asked] == [horizon]
        assert [s.horizon for s in speeds] == sorted({s.horizon for s in speeds})


def test_threshold_rules_take_their_factor_outside_their_band() -> None:
    def now(kl: float) -> list[float]:
        facts = explain_controller(ControllerQuestion(target=1, kl=kl))
        return [rule.factor_now for rule in facts.thresholds]

    assert now(1.0) == [1, 1, 1, 1]
    assert now(1.1) == [1, 1, 1.2, 1]
    assert now(2.0) == [2, 1.2, 1.2, 1.5]
    assert now(0.1) == pytest.approx([0.5, 0.8, 1 / 1.2, 1 / 1.5])


def test_threshold_rules_look_every_so_many_steps() -> None:
    rules = explain_controller(ControllerQuestion(steps=80)).thresholds
    most = {rule.name: rule.most_in_run for rule in rules}
    assert most["threshold-1.2x"] == pytest.approx(1.2)
    assert most["threshold-1.5x"] == pytest.approx(1.5**7)


def test_a_factor_beyond_floating_point_is_infinite() -> None:
    assert run_factor(1.0, 5000) == math.inf
    assert run_factor(-3.0, 2) == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"target": 0.0}, "--target: must be above 0 (got 0)"),
        ({"unit": "nat"}, "--unit: must be token or sequence (got 'nat')"),
        ({"kl": math.inf}, "--kl: must be a finite number (got inf)"),
        ({"horizon": -1.0}, "--horizon: must be above 0 (got -1)"),
        ({"rows": 0}, "--rows: must be a whole number of at least 1 (got 0)"),
        ({"steps": 0}, "--steps: must be a whole number of at least 1 (got 0)"),
        ({"beta": -0.1}, "--beta: must be 0 or more (got -0.1)"),
        ({"tokens": 1e-9}, "--tokens: must be 1 or more (got 1e-09)"),
    ],
)
def test_bad_numbers_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError) as caught:
        explain_controller(ControllerQuestion(**changes))
    assert str(caught.value) == told


def test_a_horizon_that_a_sweep_refuses_has_no_numbers_of_a_run() -> None:
    for kl in (0.0, 0.15):
        facts = explain_controller(ControllerQuestion(horizon=1, kl=kl))
        assert (facts.factor, facts.beta_next, facts.most, facts.least) == (None,) * 4
        assert facts.steps_to_double is None
        (asked,) = [s for s in facts.speeds if s.is_asked]
        assert (asked.factor, asked.steps_to_double, asked.most_in_run) == (None,) * 3


def test_the_bound_of_a_broken_horizon_is_the_sweeps() -> None:
    facts = explain_controller(ControllerQuestion(horizon=12.8))
    assert facts.shortest_horizon == pytest.approx(12.8)
    # n = 1,000,000: the table's own horizons are below it too.
    facts = explain_controller(ControllerQuestion(rows=1_000_000, horizon=1e6))
    broken = {s.horizon for s in facts.speeds if s.factor is None}
    assert broken == {5_000, 10_000, 20_000}


def test_beta_0_never_doubles() -> None:
    assert explain_controller(ControllerQuestion(beta=0.0)).steps_to_double is None
