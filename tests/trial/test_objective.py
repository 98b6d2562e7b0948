from __future__ import annotations

import math
import random

import numpy as np
import pytest

from kltune.spec.objective import GoldLimit, ObjectiveSpec
from kltune.spec.trial import KLUnit
from kltune.trial.objective import EvalPoint, Worth, judge_trial, point_of_row

PEAK = ObjectiveSpec(kl_limit=0.5)
FINAL = ObjectiveSpec(metric="gold_final", kl_limit=0.5)
MEAN = ObjectiveSpec(metric="gold_mean", kl_limit=0.5)


def point(step: int, gold: float, kl: float = 0.1, prompts: int = 4) -> EvalPoint:
    return EvalPoint(step, (gold,) * prompts, kl, 10 * kl)


def curve(*golds: float, kls: tuple[float, ...] | None = None) -> list[EvalPoint]:
    kls = kls or (0.0,) + (0.1,) * (len(golds) - 1)
    return [point(10 * i, gold, kl) for i, (gold, kl) in enumerate(zip(golds, kls, strict=True))]


def judge(points: list[EvalPoint], objective: ObjectiveSpec = PEAK, **how: int) -> Worth:
    return judge_trial(points, objective, KLUnit.TOKEN, how.get("run", 80), 80)


def test_the_peak_is_the_best_checkpoint_within_the_limit() -> None:
    worth = judge(curve(0.2, 0.5, 0.9, 0.7, kls=(0, 0.3, 0.6, 0.5)))
    assert worth.value == pytest.approx(0.7)
    assert worth.best_step == 30
    assert worth.is_feasible


def test_over_optimisation_is_judged_at_the_peak_not_at_the_end() -> None:  # field case E5
    worth = judge(curve(0.3, 0.5, 0.6, 0.5, 0.4, kls=(0, 0.1, 0.2, 0.3, 0.4)))
    assert worth.best_step == 20
    assert worth.value == pytest.approx(0.6)
    assert worth.gold_final == pytest.approx(0.45)


def test_step_zero_is_no_checkpoint_of_the_trial() -> None:
    worth = judge(curve(0.9, 0.5, 0.4))
    assert worth.best_step == 10
    assert worth.value == pytest.approx(0.5)
    assert worth.gold_start == pytest.approx(0.9)


def test_among_equal_golds_the_earlier_checkpoint_is_named() -> None:
    assert judge(curve(0.0, 0.5, 0.5)).best_step == 10


def test_the_told_peak_is_not_biased_by_picking_a_maximum() -> None:
    rng = random.Random(0)
    told: list[float] = []
    plain: list[float] = []
    for _ in range(300):  # true gold is 0 at each of 8 checkpoints
        points = [
            EvalPoint(step, tuple(rng.gauss(0, 1) for _ in range(32)), 0.1, 1.0)
            for step in range(10, 90, 10)
        ]
        worth = judge(points)
        assert worth.value is not None
        assert worth.gold_peak is not None
        told.append(worth.value)
        plain.append(worth.gold_peak)
    assert abs(np.mean(told)) < 3 * np.std(told) / math.sqrt(300)
    assert np.mean(plain) > 0.15


def test_the_two_halves_are_the_same_for_every_trial() -> None:
    step_10 = EvalPoint(10, (1.0, 0.0, 1.0, 0.0), 0.1, 1.0)
    step_20 = EvalPoint(20, (0.0, 1.0, 0.0, 1.0), 0.1, 1.0)
    # Even prompts choose step 10, odd ones value it at 0; and the other way round.
    assert judge([point(0, 0), step_10, step_20]).value == 0.0


def test_one_prompt_gives_the_plain_peak_and_no_standard_error() -> None:
    worth = judge([point(0, 0, prompts=1), point(10, 0.5, prompts=1)])
    assert worth.value == 0.5
    assert worth.gold_peak_se is None


def test_the_standard_error_is_over_prompts() -> None:
    worth = judge([EvalPoint(10, (0.0, 1.0, 0.0, 1.0), 0.1, 1.0)])
    assert worth.gold_peak_se == pytest.approx(math.sqrt(1 / 3) / 2)


def test_gold_final_is_the_mean_of_the_last_two_and_needs_an_allowed_end() -> None:
    good = judge(curve(0.1, 0.5, 0.7, 0.8), FINAL)
    assert (good.value, good.is_feasible) == (pytest.approx(0.75), True)
    bad = judge(curve(0.1, 0.5, 0.7, 0.8, kls=(0, 0.1, 0.2, 0.6)), FINAL)
    assert (bad.value, bad.is_feasible) == (pytest.approx(0.75), False)
    assert bad.constraint == pytest.approx(0.2)


def test_a_diverged_trial_has_no_feasible_end_but_a_feasible_peak() -> None:
    points = curve(0.1, 0.5, 0.7)
    final = judge_trial(points, FINAL, KLUnit.TOKEN, 25, 80, diverged=True)
    peak = judge_trial(points, PEAK, KLUnit.TOKEN, 25, 80, diverged=True)
    assert not final.is_feasible
    assert final.constraint == pytest.approx(1 - 25 / 80)
    assert (peak.is_feasible, peak.value) == (True, pytest.approx(0.7))


def test_gold_mean_weighs_evaluations_by_the_steps_between_them() -> None:
    points = [point(0, 0.0), point(10, 1.0), point(40, 1.0)]
    assert judge(points, MEAN).value == pytest.approx((10 * 0.5 + 30 * 1.0) / 40)


def test_an_infeasible_trial_is_worse_the_earlier_it_ends_and_the_more_it_overshoots() -> None:
    kls = (0.0, 0.6, 0.9)
    late = judge(curve(0.1, 0.9, 0.9, kls=kls), run=80)
    early = judge(curve(0.1, 0.9, 0.9, kls=kls), run=20)
    far = judge(curve(0.1, 0.9, 0.9, kls=(0.0, 1.5, 2.0)), run=80)
    assert not late.is_feasible
    assert late.constraint == pytest.approx(0.2)
    assert early.constraint == pytest.approx(0.75 + 0.2)
    assert far.constraint == pytest.approx(2.0)
    assert late.value == pytest.approx(0.9)
    assert late.best_step == 10


def test_a_feasible_constraint_is_the_share_of_the_limit_left() -> None:
    assert judge(curve(0.1, 0.9, kls=(0, 0.4))).constraint == pytest.approx(-0.2)
    assert judge(curve(0.1, 0.9, kls=(0, 0.5))).constraint == 0.0
    unlimited = judge(curve(0.1, 0.9, kls=(0, 9.0)), ObjectiveSpec())
    assert (unlimited.is_feasible, unlimited.constraint) == (True, -1.0)


def test_nothing_after_step_zero_is_worth_gold_at_the_start_and_infeasible() -> None:
    worth = judge(curve(0.25), run=2)
    assert (worth.value, worth.is_feasible, worth.best_step) == (0.25, False, None)
    assert worth.constraint == pytest.approx(1 - 2 / 80)


@pytest.mark.parametrize("objective", [PEAK, FINAL, MEAN])
def test_an_infeasible_constraint_is_above_zero_even_at_the_last_step(
    objective: ObjectiveSpec,
) -> None:
    points = [point(0, 0.2), EvalPoint(80, (math.nan,) * 4, 0.1, 1.0)]
    worth = judge(points, objective)
    assert not worth.is_feasible
    assert worth.constraint > 0


@pytest.mark.parametrize("objective", [PEAK, FINAL, MEAN])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_evaluations_that_are_not_finite_are_left_out(objective: ObjectiveSpec, bad: float) -> None:
    points = [*curve(0.2, 0.6), EvalPoint(20, (0.9, bad), 0.1, 1.0), point(30, 0.9, kl=bad)]
    worth = judge(points, objective)
    assert worth.value is not None
    assert math.isfinite(worth.value)
    assert math.isfinite(worth.constraint)
    assert worth.best_step == 10


def test_no_finite_evaluation_at_all_has_no_value() -> None:
    assert judge([EvalPoint(0, (math.nan,), 0.0, 0.0)]).value is None


def test_the_limit_is_in_the_unit_of_the_study() -> None:
    points = curve(0.1, 0.9, kls=(0, 0.1))  # 1.0 nats per sequence
    assert not judge_trial(points, PEAK, KLUnit.SEQUENCE, 80, 80).is_feasible


def test_a_recorded_row_gives_the_same_point_and_null_becomes_nan() -> None:
    row = {"step": 10, "gold_by_prompt": [0.5, None], "eval/kl_token": 0.1, "eval/kl_seq": None}
    found = point_of_row(row)
    assert (found.step, found.kl_token) == (10, 0.1)
    assert math.isnan(found.kl_seq)
    assert not found.is_healthy


def limited(**limit: float) -> ObjectiveSpec:
    return ObjectiveSpec(kl_limit=0.5, also={"keep": GoldLimit(**limit)})


def two_golds(*pairs: tuple[float, float]) -> list[EvalPoint]:
    """(gold, keep) at steps 0, 10, ...; KL 0.1 after step 0."""
    return [
        EvalPoint(10 * i, (gold,) * 4, 0.1 * (i > 0), 1.0 * (i > 0), {"keep": (keep,) * 4})
        for i, (gold, keep) in enumerate(pairs)
    ]


def test_a_limit_on_another_gold_changes_the_chosen_checkpoint() -> None:
    points = two_golds((0.2, 1.0), (0.5, 0.95), (0.9, 0.7), (0.6, 0.9))
    assert judge(points).best_step == 20
    for objective in (limited(max_drop=0.15), limited(min=0.85)):
        worth = judge(points, objective)
        assert (worth.best_step, worth.is_feasible) == (30, True)
        assert worth.value == pytest.approx(0.6)
    assert judge(points, limited()).best_step == 20  # only looked at


def test_a_trial_that_only_gold_would_have_chosen_is_infeasible() -> None:
    points = two_golds((0.2, 1.0), (0.5, 0.6), (0.9, 0.4))
    worth = judge(points, limited(max_drop=0.2))
    assert judge(points).is_feasible
    assert not worth.is_feasible
    assert worth.constraint == pytest.approx(1.0)  # 0.4 below step 0 at step 10, 0.2 allowed
    assert worth.best_step == 20  # of all, as with the KL limit
    assert worth.value == pytest.approx(0.9)


def test_overshoots_of_kl_and_golds_add_up_at_the_mildest_checkpoint() -> None:
    keep = {"keep": (0.6,) * 4}
    points = [
        *two_golds((0.2, 1.0)),
        EvalPoint(10, (0.5,) * 4, 1.0, 10.0, keep),  # KL 2 x its limit, drop 2 x what is allowed
        EvalPoint(20, (0.5,) * 4, 0.75, 7.5, keep),
    ]
    assert judge(points, limited(max_drop=0.2)).constraint == pytest.approx(0.5 + 1.0)
    assert judge(points, limited(max_drop=0.2), run=40).constraint == pytest.approx(2.0)


def test_the_share_left_is_that_of_the_nearest_limit() -> None:
    points = two_golds((0.2, 1.0), (0.5, 0.95))  # KL 0.1 of 0.5: 80 % left
    assert judge(points, limited(max_drop=0.2)).constraint == pytest.approx(-0.75)
    assert judge(points, limited(max_drop=1.0)).constraint == pytest.approx(-0.8)


def test_a_final_value_is_feasible_only_if_the_end_keeps_the_other_gold() -> None:
    final = limited(max_drop=0.2).model_copy(update={"metric": "gold_final"})
    assert judge(two_golds((0, 1.0), (0.5, 0.5), (0.5, 0.9)), final).is_feasible
    assert not judge(two_golds((0, 1.0), (0.5, 0.9), (0.5, 0.5)), final).is_feasible


def test_a_gold_that_is_not_on_record_allows_nothing() -> None:
    worth = judge(curve(0.2, 0.5, 0.9), limited(min=0.0))
    assert not worth.is_feasible
    assert 0 < worth.constraint < math.inf


def test_further_golds_come_back_from_a_row() -> None:
    row = {"step": 5, "gold_by_prompt": [1.0], "eval/kl_token": 0.1, "eval/kl_seq": 1.0}
    assert point_of_row(row).others == {}
    found = point_of_row({**row, "golds_by_prompt": {"keep": [0.5, None]}}).others["keep"]
    assert found[0] == 0.5
    assert math.isnan(found[1])
