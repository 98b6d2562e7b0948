"""Controllers against published vectors, and every option of control."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable

import pytest

from kltune.spec.control import ControlSpec
from kltune.spec.trial import TrialSpec
from kltune.trainer.controller import ControlFacts, ControlState, next_control, start_control

NAN = float("nan")


def trial(**fields: object) -> TrialSpec:
    return TrialSpec.model_validate(
        {"beta": 0.1, "penalty": "k2-loss", "learning_rate": 1e-2, **fields}
    )


def proportional(**fields: object) -> TrialSpec:
    return trial(
        **{"beta": 0.2, "controller": "proportional", "target_kl": 6, "horizon": 10000, **fields}
    )


def threshold(kind: str, **fields: object) -> TrialSpec:
    return trial(**{"beta": 1.0, "controller": kind, "target_kl": 10, **fields})


def facts(spec: TrialSpec, steps: int = 100, n: int = 512, **control: object) -> ControlFacts:
    return ControlFacts(spec, ControlSpec.model_validate(control), steps, n)


def run(it: ControlFacts, kls: Iterable[float]) -> list[ControlState]:
    """The state before each step and after the last."""
    states = [start_control(it)]
    for step, kl in enumerate(kls, 1):
        states.append(next_control(states[-1], kl, step, it))
    return states


def betas(it: ControlFacts, kls: Iterable[float]) -> list[float]:
    return [state.beta for state in run(it, kls)]


def moved(it: ControlFacts, beta: float, kl: float) -> float:
    return next_control(ControlState(beta, target=it.spec.target_kl), kl, 1, it).beta


@pytest.mark.parametrize(("kl", "beta"), [(9, 0.202048), (6.6, 0.201024), (6, 0.2), (0, 0.197952)])
def test_published_vectors(kl: float, beta: float) -> None:
    # field case A17, oracle O4
    assert moved(facts(proportional()), 0.2, kl) == pytest.approx(beta, abs=5e-7)


def test_per_sequence_target_and_length_give_the_per_token_target() -> None:
    # oracle O7: 6 nats/sequence at 24 tokens are .25 nats/token; beta moves alike
    per_sequence = moved(facts(proportional(target_kl=6)), 0.2, 6.6)
    per_token = moved(facts(proportional(target_kl=0.25)), 0.2, 6.6 / 24)
    assert per_token == pytest.approx(per_sequence, rel=1e-14)


def test_equal_gain_moves_beta_alike_whatever_the_count() -> None:
    # oracle O8: 64 of 640 and 8192 of 81920
    small = moved(facts(proportional(horizon=640), n=64), 0.2, 9)
    assert moved(facts(proportional(horizon=81920), n=8192), 0.2, 9) == small


@pytest.mark.parametrize(
    ("n", "horizon", "factor", "doubling"),
    [
        (64, 10000, 1.0013, 542),
        (256, 10000, 1.0051, 136),
        (512, 10000, 1.0102, 68),
        (1024, 10000, 1.0205, 34),
        (1024, 5000, 1.041, 17),
        (1024, 20000, 1.0102, 68),
    ],
)
def test_the_fastest_rise_is_that_of_the_reference_table(
    n: int, horizon: float, factor: float, doubling: int
) -> None:
    it = facts(proportional(horizon=horizon), steps=1000, n=n)
    series = betas(it, [1e6] * 600)
    assert series[1] / series[0] == pytest.approx(factor, abs=6e-5)
    # The table rounds to the nearest: half an update either way.
    assert math.log(2) / math.log(series[1] / series[0]) == pytest.approx(doubling, abs=0.6)
    assert series[doubling + 1] > 0.4 > series[doubling - 1]


def test_an_error_inside_the_clip_moves_beta_in_proportion() -> None:
    it = facts(proportional())
    assert moved(it, 0.2, 6.3) == pytest.approx(0.2 * (1 + 0.05 * 0.0512), rel=1e-12)
    assert moved(it, 0.2, 5.7) == pytest.approx(0.2 * (1 - 0.05 * 0.0512), rel=1e-12)


def test_an_error_beyond_20_percent_moves_beta_no_further() -> None:
    it = facts(proportional(horizon=100), n=10)
    assert moved(it, 1.0, 1e9) == pytest.approx(1.02, rel=1e-12)
    assert moved(it, 1.0, 7.2) == pytest.approx(1.02, rel=1e-12)
    assert moved(it, 1.0, -5.0) == pytest.approx(0.98, rel=1e-12)


def test_the_step_starts_from_the_present_beta_and_not_from_the_first() -> None:
    assert moved(facts(proportional()), 0.05, 9) == pytest.approx(0.05 * 1.01024, rel=1e-12)


def test_a_small_beta_rises_from_where_it_is() -> None:
    # field case A20; beta 0 is refused by the setting itself
    series = betas(facts(proportional(beta=1e-3)), [12] * 5)
    assert series == sorted(set(series))
    with pytest.raises(ValueError, match="controller: proportional multiplies beta"):
        proportional(beta=0)


def test_fixed_is_constant_whatever_the_kl() -> None:
    # field case A21
    it = facts(trial(beta=0.1, target_kl=6, horizon=100), ema=0.5, beta_min=1, beta_max=2)
    states = run(it, (0, 1, 2, 5, 10, 20, 30, 40, 50))
    assert [state.beta for state in states] == [0.1] * 10
    assert {state.target for state in states} == {None}


def test_a_target_is_in_the_unit_of_the_kl_and_nothing_else() -> None:
    # field case A22: k1 rows [.1, .2, .3] and [.4]
    per_sequence, per_token = (0.6 + 0.4) / 2, (0.6 + 0.4) / 4
    assert moved(facts(proportional(target_kl=0.5)), 1.0, per_sequence) == 1.0
    assert moved(facts(proportional(target_kl=0.25)), 1.0, per_token) == pytest.approx(1.0)
    assert moved(facts(proportional(target_kl=0.5)), 1.0, per_token) < 0.99


@pytest.mark.parametrize(
    ("kind", "every", "kl_factor"),
    [
        ("threshold-ppo2017", 1, [(1.51, 2), (1.49, 1), (0.67, 1), (0.66, 0.5)]),
        ("threshold-1.2x0.8", 5, [(1.21, 1.2), (1.19, 1), (0.81, 1), (0.79, 0.8)]),
        ("threshold-1.2x", 50, [(1.01, 1.2), (0.99, 1), (0.81, 1), (0.79, 1 / 1.2)]),
        ("threshold-1.5x", 10, [(1.51, 1.5), (1.49, 1), (0.67, 1), (0.66, 1 / 1.5)]),
    ],
)
def test_named_rules_follow_their_sources(
    kind: str, every: int, kl_factor: list[tuple[float, float]]
) -> None:
    for relative_kl, factor in kl_factor:
        series = betas(facts(threshold(kind)), [10 * relative_kl] * every)
        assert series[:-1] == [1.0] * every
        assert series[-1] == pytest.approx(factor, rel=1e-12)


def test_an_uneven_rule_drifts_down_and_an_even_one_does_not() -> None:
    up_and_down = [20.0] * 5 + [1.0] * 5
    assert betas(facts(threshold("threshold-1.2x0.8")), up_and_down)[-1] == pytest.approx(0.96)
    even = betas(facts(threshold("threshold-1.5x")), [20.0] * 10 + [1.0] * 10)
    assert even[-1] == pytest.approx(1, rel=1e-12)


def test_a_rule_of_ones_own_has_its_own_numbers() -> None:
    rule = {"above": 1.1, "below": 0.5, "up": 3, "down": 0.1, "every": 2}
    it = facts(threshold("threshold"), threshold=rule)
    assert betas(it, [12, 12, 6, 6, 4, 4]) == pytest.approx([1, 1, 3, 3, 3, 3, 0.3])


def test_a_named_rule_ignores_the_rule_of_ones_own() -> None:
    it = facts(threshold("threshold-ppo2017"), threshold={"up": 3, "every": 50})
    assert betas(it, [100]) == [1, 2]


def test_a_schedule_is_the_stage_at_each_steps_share() -> None:
    # kl-reference.md §2.3: beta .005 for the first 10 %, then .02
    spec = trial(beta=0.02, controller="schedule")
    it = facts(spec, steps=20, schedule=[[0, 0.25], [0.1, 1], [0.5, 0]])
    series = betas(it, [7.0] * 20)
    assert series == [0.005] * 2 + [0.02] * 8 + [0.0] * 11


def test_a_schedule_runs_on_whatever_the_kl_and_leaves_bounds_alone() -> None:
    spec = trial(beta=0.02, controller="schedule")
    it = facts(spec, steps=4, schedule=[[0, 1], [0.5, 10]], beta_max=0.1)
    assert betas(it, [NAN, NAN, 0, NAN]) == [0.02, 0.02, 0.2, 0.2, 0.2]


def test_a_staged_target_is_judged_by_the_stage_that_the_kl_was_measured_in() -> None:
    it = facts(proportional(horizon=512), steps=4, targets=[[0, 1], [0.5, 0.5]])
    states = run(it, [6, 6, 6, 3])
    assert [s.target for s in states] == [6, 6, 3, 3, 3]
    assert [s.beta for s in states] == pytest.approx([0.2, 0.2, 0.2, 0.24, 0.24])


def test_a_measured_target_is_the_warm_ups_median_times_its_factor() -> None:
    spec = proportional(target_kl=None, horizon=512)
    it = facts(spec, steps=10, calibrate={"share": 0.5, "factor": 2}, targets=[[0, 1], [0.8, 0.5]])
    states = run(it, [0, 1, 9, 3, 100, 6, 6, 6, 3, 6])
    assert [s.target for s in states] == [None] * 5 + [6, 6, 6, 3, 3, 3]
    assert [s.beta for s in states] == pytest.approx([0.2] * 10 + [0.24])
    assert states[-1].warmup == ()
    assert states[-1].calibrated == 6


def test_a_warm_up_waits_for_a_median_above_0() -> None:
    spec = proportional(target_kl=None, horizon=512)
    it = facts(spec, steps=10, calibrate={"share": 0.1})
    states = run(it, [0, NAN, 0, 4, 4])
    assert [s.target for s in states] == [None] * 5 + [2]  # of 0, 0, 4, 4
    assert {s.beta for s in states} == {0.2}


def test_a_setting_with_a_target_of_its_own_is_not_calibrated() -> None:
    it = facts(proportional(), calibrate={"share": 0.5})
    assert [s.target for s in run(it, [6, 6])] == [6, 6, 6]


def test_the_first_kl_is_taken_whole_and_later_ones_are_smoothed() -> None:
    it = facts(proportional(horizon=512), ema=0.9)
    states = run(it, [8, 3])
    assert [s.kl_ema for s in states] == [None, 8, pytest.approx(7.5)]
    # 8 and then 7.5 are above the target by more than the clip, though the second KL is not.
    assert [s.beta for s in states] == pytest.approx([0.2, 0.24, 0.288])


def test_smoothing_goes_on_between_looks() -> None:
    it = facts(threshold("threshold", beta=1), threshold={"every": 2}, ema=0.5)
    states = run(it, [32, 12])
    assert states[-1].kl_ema == 22
    assert states[-1].beta == 1.5


def test_bounds_hold_beta_and_say_so() -> None:
    it = facts(proportional(horizon=512), beta_min=0.19, beta_max=0.25)
    up = run(it, [100, 100, 100, 0])
    assert [s.beta for s in up] == pytest.approx([0.2, 0.24, 0.25, 0.25, 0.2])
    assert [s.at_bound for s in up] == [False, False, True, True, False]
    down = run(it, [0, 0])
    assert [s.beta for s in down] == [0.2, 0.19, 0.19]
    assert [s.at_bound for s in down] == [False, True, True]


def test_a_start_at_a_bound_is_said_as_well() -> None:
    assert start_control(facts(proportional(), beta_min=0.2)).at_bound
    assert not start_control(facts(proportional(), beta_min=0.1)).at_bound


@pytest.mark.parametrize("kl", [0.0, 1e9])
def test_without_bounds_beta_stays_a_positive_finite_number(kl: float) -> None:
    states = run(facts(threshold("threshold-ppo2017"), steps=3000), [kl] * 1200)
    assert 0 < states[-1].beta < math.inf
    assert states[-1].at_bound
    assert states[-1].beta in (sys.float_info.min, sys.float_info.max)


@pytest.mark.parametrize("kl", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["proportional", "threshold-ppo2017"])
def test_a_kl_that_is_no_number_leaves_everything_as_it_was(kind: str, kl: float) -> None:
    it = facts(trial(beta=1.0, controller=kind, target_kl=10, horizon=512), ema=0.5)
    before = run(it, [20, 20])[-1]
    assert next_control(before, kl, 3, it) == before
    assert next_control(before, 20, 3, it).beta > before.beta


def test_a_kl_that_is_no_number_takes_no_part_in_the_warm_up() -> None:
    it = facts(proportional(target_kl=None), steps=10, calibrate={"share": 0.3})
    assert run(it, [2, NAN, 4])[-1].calibrated == 3


def test_a_staged_target_follows_the_clock_through_a_kl_that_is_no_number() -> None:
    it = facts(proportional(), steps=4, targets=[[0, 1], [0.5, 0.5]])
    assert [s.target for s in run(it, [NAN, NAN])] == [6, 6, 3]


@pytest.mark.parametrize("cut", range(9))
def test_a_state_that_went_through_json_goes_on_as_if_nothing_had_been(cut: int) -> None:
    spec = threshold("threshold", target_kl=None)
    it = facts(
        spec,
        steps=10,
        ema=0.3,
        beta_max=2.0,
        calibrate={"share": 0.4, "factor": 0.5},
        threshold={"every": 2},
    )
    kls = [0.1, 0.7, 0.3, 0.2, NAN, 0.9, 0.8, 0.01, 0.02, 0.03]
    whole = run(it, kls)
    state = ControlState.from_json(json.loads(json.dumps(whole[cut].to_json(), allow_nan=False)))
    assert state == whole[cut]
    for step in range(cut + 1, 11):
        state = next_control(state, kls[step - 1], step, it)
    assert state == whole[-1]
