from __future__ import annotations

from collections.abc import Sequence

import pytest

from kltune.guard.alarm import Action, Alarm
from kltune.guard.evaluations import evaluation_alarms
from kltune.metrics.record import StepMetrics, TokenProfile
from kltune.spec.study import StudySpec
from kltune.trial.objective import EvalPoint
from kltune.trial.outcome import StopReason

R = StopReason
FINE = {
    "train/proxy_std": 1.0,
    "train/zero_group_frac": 0.0,
    "train/advantage_std": 0.94,
    "train/entropy_token": 1.0,
    "tokens/completion_mean": 20.0,
    "tokens/truncated_frac": 0.0,
    "tokens/repeated_frac": 0.0,
    "kl/exact_p99_token": 0.5,
}


def spec(**sections: object) -> StudySpec:
    given = {
        "name": "small",
        "task": "kitchen",
        "model": {"base": "builtin:kitchen"},
        "trainer": {"steps": 80},
        "search": {"beta": {"log": [1e-3, 1.0]}},
        "budget": {"trials": 2},
    }
    return StudySpec.model_validate({**given, **sections})


def history(
    steps: int = 40, *, since: int = 10, kl: float = 0.2, **late: float
) -> list[StepMetrics]:
    """A proxy that rises from the start; ``late`` metrics (``group__name``) from step ``since`` + 1 on."""
    changed = {name.replace("__", "/"): value for name, value in late.items()}
    found: list[StepMetrics] = []
    for step in range(1, steps + 1):
        values = {**FINE, **(changed if step > since else {})}
        proxy = 0.1 * step if changed or kl > 0.01 else 0.0
        found.append(StepMetrics(0, 0, step, kl, 20 * kl, proxy, 0.1, 80, True, values))
    return found


def points(
    *golds: float, kl: Sequence[float] = (), every: int = 10, prompts: int = 16
) -> list[EvalPoint]:
    kls = kl or [0.1] * len(golds)
    return [
        EvalPoint(every * i, tuple(gold + 0.01 * (p % 3) * i for p in range(prompts)), k, 20 * k)
        for i, (gold, k) in enumerate(zip(golds, kls, strict=True))
    ]


def flat(count: int = 5) -> list[EvalPoint]:
    return points(*[0.5] * count)


def reasons(alarms: Sequence[Alarm]) -> list[StopReason]:
    return [alarm.verdict.reason for alarm in alarms]


def test_a_healthy_trial_hears_nothing() -> None:
    assert evaluation_alarms(spec(), history(), flat()) == []
    assert evaluation_alarms(spec(), [], points(0.5)) == []
    assert evaluation_alarms(spec(), history(), []) == []


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        ({"train__entropy_token": 0.1}, R.ENTROPY_COLLAPSE),
        ({"tokens__repeated_frac": 0.5}, R.REPETITION),
        ({"tokens__completion_mean": 5.0}, R.LENGTH_COLLAPSE),
        ({"tokens__completion_mean": 50.0}, R.LENGTH_GROWTH),
        ({"tokens__truncated_frac": 0.8}, R.TRUNCATION),
        ({"train__zero_group_frac": 1.0}, R.PROXY_SPREAD),
        ({"kl__exact_p99_token": 15.0}, R.LOCAL_KL),
    ],
)
def test_each_guard_over_the_steps_warns_after_two_evaluations(
    late: dict[str, float], reason: StopReason
) -> None:
    steps = history(**late)
    assert evaluation_alarms(spec(), steps[:20], flat(3)) == []
    (alarm,) = evaluation_alarms(spec(), steps[:30], flat(4))
    assert (alarm.action, alarm.verdict.reason, alarm.step) == (Action.WARN, reason, 30)
    assert alarm.first_step == 16
    assert alarm.verdict.detail.endswith("; seen at 2 evaluations (steps 20-30)")


def test_a_guard_that_is_told_to_stops_and_one_that_is_off_is_silent() -> None:
    steps = history(train__entropy_token=0.1)
    stop = spec(guards={"entropy": "stop"})
    assert [a.action for a in evaluation_alarms(stop, steps, flat())] == [Action.STOP]
    assert evaluation_alarms(spec(guards={"entropy": "off"}), steps, flat()) == []


def test_stops_come_first() -> None:
    steps = history(train__entropy_token=0.1, train__zero_group_frac=1.0)
    alarms = evaluation_alarms(spec(guards={"entropy": "stop"}), steps, flat())
    assert reasons(alarms) == [R.ENTROPY_COLLAPSE, R.PROXY_SPREAD]


def test_patience_and_warm_up_are_those_of_the_spec() -> None:
    steps = history(train__entropy_token=0.1)
    once = spec(guards={"entropy": {"patience": 1}})
    assert reasons(evaluation_alarms(once, steps[:20], flat(3))) == [R.ENTROPY_COLLAPSE]
    late = spec(guards={"entropy": {"warmup": 20}})
    assert evaluation_alarms(late, steps[:30], flat(4)) == []
    assert reasons(evaluation_alarms(late, steps, flat(5))) == [R.ENTROPY_COLLAPSE]


def test_what_comes_back_between_two_evaluations_is_forgiven() -> None:
    steps = [*history(30, since=15, train__entropy_token=0.1)[:20], *history(40)[20:]]
    once = spec(guards={"entropy": {"patience": 1}})
    assert reasons(evaluation_alarms(once, steps[:20], flat(3))) == [R.ENTROPY_COLLAPSE]
    assert evaluation_alarms(spec(), steps, flat()) == []


def test_a_stalled_trial_stops_with_its_cause() -> None:
    steps = history(kl=0.0)
    assert evaluation_alarms(spec(), steps[:30], flat(4)) == []
    (alarm,) = evaluation_alarms(spec(), steps, flat())
    assert (alarm.action, alarm.verdict.reason) == (Action.STOP, R.STALLED)
    assert "learning rate too small" in alarm.verdict.detail


def test_beta_is_read_in_the_unit_of_the_study() -> None:
    steps = [
        StepMetrics(0, 0, m.step, 0.0, 0.0, 0.0, 5.0, 80, True, {**m.values, "train/proxy_std": 99.0})
        for m in history(kl=0.0)
    ]  # fmt: skip
    (reward,) = evaluation_alarms(spec(), steps, flat())
    (native,) = evaluation_alarms(spec(beta_unit="native"), steps, flat())
    assert "learning rate too small" in reward.verdict.detail
    assert "beta too large" in native.verdict.detail


def test_places_of_the_completion_are_looked_at() -> None:
    place = TokenProfile((0, 1, 20), (7.0, 0.01), (64, 640))
    steps = [
        StepMetrics(0, 0, m.step, m.kl_token, m.kl_seq, m.proxy, 0.1, 80, True, m.values, place)
        for m in history(kl=0.6)
    ]
    (alarm,) = evaluation_alarms(spec(), steps, flat())
    assert alarm.verdict.reason is R.LOCAL_KL
    assert "kl at position 0 is 7 nats/token" in alarm.verdict.detail


def test_gold_that_falls_far_beyond_the_best_checkpoint_stops() -> None:
    fallen = points(0.1, 0.5, 0.9, 0.4, 0.3, kl=[0, 0.1, 0.2, 0.5, 0.7])
    assert evaluation_alarms(spec(), history(30), fallen[:4]) == []
    (alarm,) = evaluation_alarms(spec(), history(), fallen)
    assert (alarm.action, alarm.verdict.reason) == (Action.STOP, R.GOLD_DROP)
    assert (alarm.step, alarm.first_step) == (40, 30)
    warned = spec(objective={"metric": "gold_final"})
    assert [a.action for a in evaluation_alarms(warned, history(), fallen)] == [Action.WARN]
    assert evaluation_alarms(spec(guards={"gold_drop": "off"}), history(), fallen) == []


def test_gold_is_compared_with_allowed_checkpoints_only() -> None:
    fallen = points(0.1, 0.5, 0.9, 0.4, 0.3, kl=[0, 0.1, 0.2, 0.5, 0.7])
    strict = spec(objective={"kl_limit": 0.01}, guards={"kl": "off"})
    assert evaluation_alarms(strict, history(), fallen) == []


def test_the_kl_of_evaluations_is_a_limit_of_its_own() -> None:
    guards = {"kl": {"limit": 0.5, "patience": 2, "over": "evaluations"}}
    over = points(0.1, 0.5, 0.5, 0.5, kl=[0, 0.1, 0.6, 0.7])
    (alarm,) = evaluation_alarms(spec(guards=guards), history(), over)
    assert alarm.verdict.detail == "kl 0.7 > 0.5 nats/token for 2 evaluations (steps 20-30)"
    assert alarm.verdict.reason is R.KL_LIMIT
    steps_only = spec(guards={"kl": {"limit": 0.5, "patience": 2}})
    assert evaluation_alarms(steps_only, history(), over) == []


def test_an_evaluation_that_is_not_finite_tells_nothing_of_gold() -> None:
    fallen = points(0.1, 0.5, 0.9, 0.4, 0.3, kl=[0, 0.1, 0.2, 0.5, 0.7])
    broken = [*fallen[:4], EvalPoint(40, (float("nan"),) * 16, 0.7, 14.0)]
    assert evaluation_alarms(spec(), history(), broken) == []


def test_steps_after_the_evaluation_change_nothing() -> None:
    steps = history(60, since=10, train__entropy_token=0.1)
    assert evaluation_alarms(spec(), steps, flat(4)) == evaluation_alarms(
        spec(), steps[:30], flat(4)
    )
