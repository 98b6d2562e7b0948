"""A study's folder reckoned up by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_costs import add_costs, add_timing, placed
from fake_study import SPEC, FakeTrial, trial, write_study

from kltune.report.accounting import Accounting
from kltune.report.reckon import account, accounting_data
from kltune.report.rows import read_study
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import StopReason

STEPS = SPEC["trainer"]["steps"]
PRICE = {"per_hour": 2.5, "currency": "EUR", "watts": 300, "per_kwh": 0.3}


def done(**changes: Any) -> FakeTrial:
    """A trial that runs its course: beta keeps its KL below the limit."""
    return trial(0.5, **changes)


def pruned(steps: int) -> FakeTrial:
    return done(steps=steps, reason=StopReason.PRUNED, detail="beaten")


def study_of(folder: Path, trials: list[FakeTrial], **spec: Any) -> Path:
    path = write_study(folder, trials, **spec)
    add_costs(path)
    return path


def reckoned(folder: Path) -> Accounting:
    return account(read_study(folder))


def test_planned_is_what_was_run_and_what_was_spared_by_reason(tmp_path: Path) -> None:
    fakes = [
        done(),
        pruned(40),
        pruned(30),
        done(steps=12, reason=StopReason.DIVERGED, detail="nan"),
        done(steps=17, reason=StopReason.ERROR, detail="boom"),
        done(steps=33, reason=None),
        done(steps=20, reason=StopReason.INTERRUPTED, detail="SIGTERM"),
    ]
    steps = reckoned(study_of(tmp_path, fakes)).steps
    assert (steps.trials, steps.planned) == (5, 5 * STEPS), "running ones are not over"
    assert steps.run == STEPS + 40 + 30 + 12 + 17
    found = {cut.reason: (cut.trials, cut.steps, cut.seconds) for cut in steps.cuts}
    assert found == {
        StopReason.PRUNED: (2, 90, pytest.approx(90 * 0.2)),
        StopReason.DIVERGED: (1, 68, pytest.approx(68 * 0.2)),
    }
    assert steps.failed_short == STEPS - 17
    assert steps.planned == steps.run + steps.spared + steps.failed_short
    assert (steps.wasted.rows, steps.wasted.seconds) == (17, pytest.approx(17 * 0.2))


def test_what_a_guard_ended_is_spared_even_where_it_counts_as_failed(tmp_path: Path) -> None:
    fakes = [
        done(),
        done(steps=12, reason=StopReason.NEGATIVE_KL, detail="k1 -0.9 nats/sequence"),
        done(steps=30, reason=StopReason.GOLD_DROP, detail="gold fell"),
        done(steps=20, reason=StopReason.LENGTH_GROWTH, detail="long"),
    ]
    steps = reckoned(study_of(tmp_path, fakes)).steps
    assert {cut.reason: cut.steps for cut in steps.cuts} == {
        StopReason.NEGATIVE_KL: STEPS - 12,
        StopReason.GOLD_DROP: STEPS - 30,
        StopReason.LENGTH_GROWTH: STEPS - 20,
    }
    assert steps.failed_short == 0
    assert steps.planned == steps.run + steps.spared + steps.failed_short
    assert steps.wasted.rows == 12


def test_a_trials_spared_steps_cost_what_its_own_steps_did(tmp_path: Path) -> None:
    study = study_of(tmp_path, [pruned(40), pruned(40)])
    path = study / "trials/00001/metrics.jsonl"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"time/step_s": 0.2', '"time/step_s": 1')
    )
    (cut,) = reckoned(study).steps.cuts
    assert cut.seconds == pytest.approx(40 * 0.2 + 40 * 1.0)


def test_a_guard_that_stops_the_last_step_spares_nothing(tmp_path: Path) -> None:
    late = done(reason=StopReason.KL_LIMIT, detail="kl 0.6 > 0.5 nats/token for 3 steps")
    (cut,) = reckoned(study_of(tmp_path, [late, done()])).steps.cuts
    assert (cut.trials, cut.steps, cut.seconds) == (1, 0, 0.0)  # one count of trials everywhere


def test_steps_of_an_attempt_that_led_nowhere_are_wasted(tmp_path: Path) -> None:
    study = study_of(tmp_path, [done(steps=60, reason=None)])
    TrialFolder(study, 0, 2).append_event("resumed", 50)
    found = reckoned(study)
    assert found.steps.wasted.rows == 10
    assert found.time.steps.rows == 60, "they cost time all the same"


def test_sharing_is_alone_over_realised(tmp_path: Path) -> None:
    study = study_of(tmp_path, [done(), done()])  # 32 s of steps, 9 s of evaluations
    add_timing(
        study,
        wall_s=25.0,
        trainer_s=24.0,
        worker_s=50.0,
        placement=placed(2, 2),
        alone_step_s=0.18,
        placed_step_s=0.11,
    )
    shared = reckoned(study).shared
    realised = 24.0 * 32 / 41 / 160
    assert shared.realised_step_s == pytest.approx(realised)
    assert shared.factor == pytest.approx(0.18 / realised)
    assert (shared.workers, shared.slots, shared.threads, shared.bound) == (2, 2, 1, 2)


def test_the_limit_is_useful_operations_over_wall_time_and_peak(tmp_path: Path) -> None:
    study = study_of(tmp_path, [done()])
    add_timing(study, peak_gflops=50.0)
    limit = reckoned(study).limit
    gflop = 80 * 6.0 + 9 * 9.0
    assert limit.gflop == pytest.approx(gflop)
    assert limit.overall == pytest.approx(gflop / (100.0 * 50.0))
    train_wall_s = 95.0 * 16.0 / (16.0 + 4.5)
    assert limit.training == pytest.approx(480.0 / (train_wall_s * 50.0))


def test_one_row_without_its_operations_leaves_the_limit_unknown(tmp_path: Path) -> None:
    study = write_study(tmp_path, [done(), done()])
    add_costs(study, is_counted=False)
    add_timing(study, peak_gflops=50.0)
    limit = reckoned(study).limit
    assert (limit.gflop, limit.overall, limit.training) == (None, None, None)
    assert limit.uncounted == 2 * (80 + 9)


def test_a_full_trial_is_its_steps_and_evaluations_at_the_studys_pace(tmp_path: Path) -> None:
    study = study_of(tmp_path, [done(), pruned(40)])
    add_timing(study)
    full = reckoned(study).full_trial
    assert (full.steps, full.evaluations) == (80, 9)
    assert full.seconds == pytest.approx(80 * 0.2 + 9 * 0.5)
    busy_s = 120 * 0.2 + 14 * 0.5
    assert full.hundred_s == pytest.approx(100 * 20.5 * 100.0 / busy_s)


def test_wall_time_that_misses_a_crashed_session_gives_no_pace_and_no_price(
    tmp_path: Path,
) -> None:
    study = study_of(tmp_path, [done()], budget={"trials": 4, "price": PRICE})
    add_timing(study, wall_s=10.0, trainer_s=9.0)
    found = reckoned(study)
    assert not found.time.is_whole
    assert found.full_trial.hundred_s is None
    assert found.bill is not None
    assert (found.bill.money, found.bill.energy_kwh) == (None, None)


def test_a_price_is_reckoned_only_where_one_is_given(tmp_path: Path) -> None:
    plain = study_of(tmp_path / "a", [done()])
    add_timing(plain)
    assert reckoned(plain).bill is None
    priced = study_of(tmp_path / "b", [done()], budget={"trials": 4, "price": PRICE})
    add_timing(priced, wall_s=3600.0)
    bill = reckoned(priced).bill
    assert bill is not None
    assert bill.energy_kwh == pytest.approx(0.3)
    assert bill.money == pytest.approx(2.5 + 0.09)


def test_an_old_study_says_what_it_does_not_know(tmp_path: Path) -> None:
    study = write_study(tmp_path, [done()])
    found = reckoned(study)
    assert found.time.wall_s is None
    assert found.shared.factor is None
    assert found.limit.overall is None
    assert found.full_trial.seconds is None
    assert found.steps.run == 80


def test_the_data_are_strict_and_hold_what_follows_from_them(tmp_path: Path) -> None:
    study = study_of(tmp_path, [done(), pruned(40)])
    add_timing(study, placement=placed(1, 4, 2), alone_step_s=0.3, peak_gflops=50.0)
    data = accounting_data(reckoned(study))
    json.dumps(data, allow_nan=False)
    assert data["steps"]["cuts"] == [
        {"reason": "pruned", "trials": 1, "steps": 40, "worker_s": pytest.approx(8.0)}
    ]
    assert data["shared"]["factor"] == pytest.approx(0.3 / data["shared"]["realised_step_s"])
    assert data["shared"]["bound"] is None
    assert data["price"] is None
