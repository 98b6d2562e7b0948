from __future__ import annotations

import math
import pickle
import random
from collections.abc import Sequence
from itertools import product

from kltune.guard.alarm import Action, Alarm
from kltune.guard.judge import StepWatch, evaluation_alarms, step_alarms
from kltune.metrics.record import StepMetrics
from kltune.spec.guards import KLGuardSpec
from kltune.spec.study import StudySpec
from kltune.spec.trial import KLUnit
from kltune.trial.objective import EvalPoint
from kltune.trial.outcome import StopReason, Verdict

LIMIT = KLGuardSpec(limit=0.5, patience=3)


def step(number: int, kl: float, is_finite: bool = True, **values: float) -> StepMetrics:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return StepMetrics(0, 0, number, kl, 10 * kl, 0.0, 0.1, 80, is_finite, named)


def spec(**guards: object) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "small",
            "task": "kitchen",
            "model": {"base": "builtin:kitchen"},
            "trainer": {"steps": 80},
            "search": {"beta": {"log": [1e-3, 1.0]}},
            "budget": {"trials": 2},
            "guards": {"kl": {"limit": 0.5}, **guards},
        }
    )


def judge_steps(
    history: Sequence[StepMetrics],
    kl_guard: KLGuardSpec | None,
    kl_unit: KLUnit,
    elapsed_s: float = 0.0,
    wall_s: float | None = None,
) -> Verdict | None:
    """What ends a trial whose only guards are these."""
    one = spec(kl=kl_guard or "off", jump="off", negative_kl="off", wall=wall_s)
    alarms = step_alarms(one.model_copy(update={"kl_unit": kl_unit}), history, elapsed_s)
    return alarms[0].verdict if alarms else None


def judge(kls: Sequence[float], unit: KLUnit = KLUnit.TOKEN, first: int = 1) -> Verdict | None:
    return judge_steps([step(first + i, kl) for i, kl in enumerate(kls)], LIMIT, unit)


def test_kl_above_the_limit_for_patience_steps_ends_the_trial_and_says_so() -> None:
    verdict = judge([0.1, 0.55, 0.6, 0.612], first=40)
    assert verdict == Verdict(
        StopReason.KL_LIMIT, "kl 0.612 > 0.5 nats/token for 3 steps (steps 41-43)"
    )


def test_one_spike_is_forgiven() -> None:
    assert judge([0.6, 0.9, 0.4]) is None
    assert judge([0.6, 0.4, 0.7, 0.8]) is None


def test_the_limit_itself_is_allowed() -> None:
    assert judge([0.5] * 9) is None


def test_a_kl_just_above_the_limit_is_not_printed_as_equal_to_it() -> None:
    verdict = judge([0.50001] * 3)
    assert verdict is not None
    assert "kl 0.50001 > 0.5" in verdict.detail


def test_the_limit_is_in_the_unit_of_the_study() -> None:
    assert judge([0.06] * 3) is None
    verdict = judge([0.06] * 3, KLUnit.SEQUENCE)
    assert verdict is not None
    assert "kl 0.6 > 0.5 nats/sequence" in verdict.detail


def test_without_a_limit_no_kl_ends_a_trial() -> None:
    assert judge_steps([step(i, 99.0) for i in range(9)], None, KLUnit.TOKEN) is None


def test_the_distance_of_one_update_never_fires_the_reference_limit() -> None:  # field case E6
    history = [step(i, 0.01, kl__update_token=9.0) for i in range(9)]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN) is None


def test_a_step_that_is_not_finite_is_diverged_and_says_where() -> None:
    history = [step(1, 0.1), step(2, 0.1, False, train__loss=math.nan, train__nonfinite_tokens=3.0)]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN) == Verdict(
        StopReason.DIVERGED, "not finite at step 2: train/loss = nan, 3 valid tokens"
    )


def test_a_kl_that_is_not_finite_is_diverged_although_the_step_claims_to_be_fine() -> None:
    verdict = judge([0.1, math.inf])
    assert verdict is not None
    assert verdict.reason is StopReason.DIVERGED
    assert "kl/exact_token = inf" in verdict.detail


def test_a_metric_without_a_value_is_no_divergence() -> None:
    history = [step(1, 0.1, train__advantage_std=math.nan)]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN) is None


def test_a_loss_that_starts_at_zero_and_rises_is_no_reason_to_stop() -> None:  # field case E4
    history = [step(i, 0.1, train__loss=loss) for i, loss in enumerate([0, 0, 0.001, 0.004])]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN) is None


def test_the_wall_clock_of_the_trial_ends_it() -> None:
    history = [step(1, 0.1)]
    assert judge_steps(history, LIMIT, KLUnit.TOKEN, 2.9, 3.0) is None
    assert judge_steps(history, LIMIT, KLUnit.TOKEN, 3.26, 3.0) == Verdict(
        StopReason.WALL_CLOCK, "ran 3.3 s > 3 s of wall clock"
    )


def test_divergence_outranks_kl_and_kl_outranks_the_wall_clock() -> None:
    over = [step(i, 0.9) for i in range(3)]
    kl = judge_steps(over, LIMIT, KLUnit.TOKEN, 9.0, 1.0)
    nan = judge_steps([*over, step(3, 0.9, False)], LIMIT, KLUnit.TOKEN, 9.0, 1.0)
    assert kl is not None
    assert nan is not None
    assert (kl.reason, nan.reason) == (StopReason.KL_LIMIT, StopReason.DIVERGED)


def test_no_guard_ends_a_trial_right_after_a_step_that_the_watch_lets_pass() -> None:
    watch = pickle.loads(pickle.dumps(StepWatch(LIMIT, KLUnit.TOKEN)))
    num_ended = 0
    for kls in product((0.1, 0.500001, 9.0, math.nan, math.inf), repeat=4):
        for is_finite in (True, False):
            history = [*(step(i, kl) for i, kl in enumerate(kls)), step(4, kls[0], is_finite)]
            if judge_steps(history, LIMIT, KLUnit.TOKEN) is not None:
                num_ended += 1
                assert watch(history[-1])
    assert num_ended > 100
    assert not watch(step(1, 0.5))


def reasons(alarms: Sequence[Alarm]) -> list[StopReason]:
    return [alarm.verdict.reason for alarm in alarms]


def test_the_first_stop_is_the_one_that_says_most() -> None:
    k1 = {"kl__k1_seq": -9.0, "kl__k1_seq_se": 0.1, "kl__k1_token": -0.9}
    history = [step(1, 0.01), *(step(i, 2.0, **k1) for i in range(2, 5))]
    expected = [StopReason.NEGATIVE_KL, StopReason.KL_LIMIT, StopReason.WALL_CLOCK]
    assert reasons(step_alarms(spec(wall=1), history, 9.0)) == expected
    broken = [*history, step(5, 2.0, is_finite=False, **k1)]
    assert reasons(step_alarms(spec(wall=1), broken, 9.0))[0] is StopReason.DIVERGED


def test_a_jump_stops_right_when_it_has_stayed_for_its_patience() -> None:
    history = [step(i, 0.02) for i in range(1, 9)] + [step(9, 3.0), step(10, 3.1)]
    assert step_alarms(spec(kl="off"), history[:9]) == []
    (alarm,) = step_alarms(spec(kl="off"), history)
    assert (alarm.verdict.reason, alarm.step, alarm.first_step) == (StopReason.KL_JUMP, 10, 9)
    assert step_alarms(spec(kl="off", jump="off"), history) == []
    assert step_alarms(spec(kl="off", jump={"warmup": 9}), history) == []


def test_a_guard_that_only_warns_comes_after_those_that_stop() -> None:
    history = [step(1, 0.01), *(step(i, 2.0) for i in range(2, 5))]
    warned = spec(kl={"limit": 0.5, "action": "warn"}, wall=1)
    alarms = step_alarms(warned, history, 9.0)
    assert [alarm.action for alarm in alarms] == [Action.STOP, Action.WARN]
    assert reasons(alarms) == [StopReason.WALL_CLOCK, StopReason.KL_LIMIT]


def test_steps_of_the_warm_up_do_not_count() -> None:
    history = [step(i, 0.9) for i in range(1, 7)]
    late = spec(kl={"limit": 0.5, "warmup": 4})
    assert step_alarms(late, history) == []
    assert reasons(step_alarms(late, [*history, step(7, 0.9)])) == [StopReason.KL_LIMIT]


def test_a_kl_limit_over_evaluations_is_not_judged_by_steps() -> None:
    history = [step(i, 0.9) for i in range(1, 9)]
    over = spec(kl={"limit": 0.5, "over": "evaluations"})
    assert step_alarms(over, history) == []
    assert not StepWatch.of(over)(history[-1])
    assert StepWatch.of(spec())(history[-1])


def test_each_of_two_limits_fires_alone() -> None:  # field case E6
    update = [step(i, 0.01, kl__update_token=9.0) for i in range(1, 9)]
    assert step_alarms(spec(), update) == []
    reference = [step(i, 0.9, kl__update_token=1e-4) for i in range(1, 9)]
    assert reasons(step_alarms(spec(), reference)) == [StopReason.KL_LIMIT]


def test_a_loss_that_starts_at_0_and_rises_gives_no_alarm() -> None:  # field cases A34 and E4
    losses = [0.0, 0.0, 0.001, 0.004, *[0.004] * 40]
    history = [
        StepMetrics(0, 0, i, 0.005 * i, 0.05 * i, 0.02 * i, 0.1, 80, True, {"train/loss": loss})
        for i, loss in enumerate(losses, start=1)
    ]
    points = [EvalPoint(i, (0.1 * i,) * 4, 0.005 * i, 0.05 * i) for i in range(0, 41, 10)]
    assert step_alarms(spec(), history) == []
    assert evaluation_alarms(spec(), history, points) == []


def test_a_positive_k3_is_never_called_negative() -> None:  # field case A2
    values = {"kl__k3_token": 0.05743, "kl__k1_token": -0.066667, "kl__k1_seq": -0.2}
    history = [step(i, 0.05743, **values) for i in range(1, 9)]
    assert step_alarms(spec(), history) == []


def test_the_watch_lets_no_step_pass_on_which_any_step_alarm_can_fire() -> None:
    rng = random.Random(0)
    specs = [spec(), spec(kl="off"), spec(jump={"rise_token": 0.3, "factor": 1.0, "patience": 1}),
             spec(kl={"limit": 0.2, "action": "warn"}, negative_kl={"patience": 1})]  # fmt: skip
    num_alarms = num_passed = 0
    for one in specs:
        watch = pickle.loads(pickle.dumps(StepWatch.of(one)))
        for _ in range(150):
            history: list[StepMetrics] = []
            for number in range(1, 15):
                kl = rng.choice([0.0, 1e-4, 0.1, 0.3, 1.2, 6.0, math.inf, -1e-9])
                values = {"kl__k1_seq": rng.gauss(0, 1), "kl__k1_token": rng.gauss(0, 0.1)}
                if rng.random() < 0.7:
                    values["kl__k1_seq_se"] = rng.choice([0.01, 0.2])
                history.append(step(number, kl, rng.random() < 0.98, **values))
                fired = bool(step_alarms(one, history))
                num_alarms += fired
                num_passed += not watch(history[-1])
                assert watch(history[-1]) or not fired
    assert num_alarms > 500
    assert num_passed > 500


def test_a_watch_for_guards_that_are_off_lets_everything_finite_pass() -> None:
    watch = StepWatch.of(spec(kl="off", jump="off", negative_kl="off"))
    assert not watch(step(1, 99.0, kl__k1_seq=-9.0, kl__k1_seq_se=0.1))
    assert watch(step(1, 99.0, is_finite=False))


def test_without_a_standard_error_the_mean_per_token_is_judged() -> None:
    """One completion a step: a sequence's k1 of -2 over 100 tokens is noise, -0.4 a token is not."""
    noise = [step(i, 0.01, kl__k1_seq=-2.0, kl__k1_token=-0.02) for i in range(1, 9)]
    assert step_alarms(spec(), noise) == []
    assert not StepWatch.of(spec())(noise[-1])
    fault = [step(i, 0.01, kl__k1_seq=-40.0, kl__k1_token=-0.4) for i in range(1, 3)]
    assert step_alarms(spec(), fault[:1]) == []
    assert reasons(step_alarms(spec(), fault)) == [StopReason.NEGATIVE_KL]
