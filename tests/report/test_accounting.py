"""What follows from counts and seconds, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kltune.report.accounting import CUTS, Cut, Shared, Steps, Time
from kltune.report.trial_cost import Work
from kltune.trial.outcome import STATE_OF, StopReason, TrialState

TIME = Time(
    wall_s=100.0,
    trainer_s=90.0,
    worker_s=200.0,
    bookkeeping_frac=0.1,
    steps=Work(800, 120.0, 4000.0),
    evaluations=Work(20, 60.0, 500.0),
    phases={},
)
SHARED = Shared(2, 2, 1, alone_step_s=0.2, placed_step_s=0.11, realised_step_s=0.125)


def test_spared_is_the_sum_over_reasons() -> None:
    cuts = (
        Cut(StopReason.PRUNED, 2, 60, 12.0),
        Cut(StopReason.KL_LIMIT, 1, 30, 4.0),
    )
    steps = Steps(10, 800, 710, cuts, 0, Work())
    assert (steps.spared, steps.spared_s) == (90, 16.0)
    unknown = replace(steps, cuts=(*cuts, Cut(StopReason.DIVERGED, 1, 80, None)))
    assert (unknown.spared, unknown.spared_s) == (170, None)


def test_every_early_ending_that_is_told_or_a_guards_spares_work() -> None:
    told = {
        reason
        for reason, state in STATE_OF.items()
        if state in (TrialState.COMPLETE, TrialState.PRUNED)
    }
    assert set(CUTS) == told - {StopReason.DONE} | {StopReason.NEGATIVE_KL}


def test_training_has_its_share_of_the_trainers_wall_time() -> None:
    assert TIME.busy_s == 180.0
    assert TIME.train_wall_s == pytest.approx(90.0 * 120 / 180)
    assert TIME.wall_per_step_s == pytest.approx(60.0 / 800)


def test_more_work_than_workers_had_time_for_means_that_wall_time_is_missing() -> None:
    assert TIME.is_whole
    crashed = replace(TIME, steps=Work(900, 150.0, 4500.0))
    assert not crashed.is_whole
    assert crashed.train_wall_s is None
    assert not replace(TIME, steps=Work(800, 120.0, 4000.0, untimed=1)).is_whole
    assert not replace(TIME, worker_s=None).is_whole


def test_the_factor_is_alone_over_realised_and_workers_bound_it() -> None:
    assert SHARED.factor == pytest.approx(1.6)
    assert SHARED.bound == 2
    assert replace(SHARED, slots=8).bound is None, "a bank shares weights besides"
    assert replace(SHARED, alone_step_s=None).factor is None
