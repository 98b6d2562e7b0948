from __future__ import annotations

import dataclasses
from pathlib import Path

from fake_study import trial, write_study

from kltune.report.no_answer import NoAnswer, no_answer
from kltune.report.rows import StudyRows, read_study
from kltune.trial.outcome import StopReason


def read(folder: Path, *fakes: object, **spec: object) -> StudyRows:
    return read_study(write_study(folder, list(fakes), **spec))  # type: ignore[arg-type]


def of(study: StudyRows) -> NoAnswer:
    return no_answer(study)


def before_any_evaluation(study: StudyRows) -> StudyRows:
    rows = (dataclasses.replace(r, checkpoints=r.checkpoints[:1], peak=None) for r in study.trials)
    return dataclasses.replace(study, trials=tuple(rows))


def test_while_a_sweep_runs_it_is_not_to_be_run_again(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.1, steps=30, reason=None))
    running = of(dataclasses.replace(study, is_running=True))
    assert running.reason == "No trial has ended yet (1 started). The sweep is running."
    assert running.advice == (
        "The first result comes when a trial ends, after 80 steps at the latest; the furthest is at step 30.",
    )
    stopped = of(dataclasses.replace(study, is_running=False))
    assert stopped.advice == ("Run the same kltune sweep again to go on.",)
    unknown = of(dataclasses.replace(study, is_running=None))
    assert unknown.advice[0].startswith("If no sweep is at work in this folder: run the same")


def test_trials_that_all_diverged_are_said_to_have_diverged(tmp_path: Path) -> None:
    fake = trial(0.1, steps=7, reason=StopReason.DIVERGED, detail="nan")
    found = of(before_any_evaluation(read(tmp_path, fake, fake)))
    assert found.reason == (
        "No feasible trial: all 2 trials that ended diverged before an evaluation after step 0."
    )
    assert "trainer.learning_rate" in found.advice[0]


def test_guards_that_ended_all_before_an_evaluation_are_named(tmp_path: Path) -> None:
    kl = trial(0.1, steps=7, reason=StopReason.KL_LIMIT, detail="kl")
    nan = trial(0.1, steps=7, reason=StopReason.DIVERGED, detail="nan")
    found = of(before_any_evaluation(read(tmp_path, kl, kl, nan)))
    assert found.reason.endswith(
        "none reached an evaluation after step 0 (2 ended by the guard kl_limit, 1 diverged)."
    )
    assert "diverged" not in found.advice[0]


def test_infeasible_trials_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    nan = trial(0.0, steps=40, reason=StopReason.DIVERGED, detail="nan")
    found = of(read(tmp_path, trial(0.0), trial(0.001), nan, objective={"kl_limit": 1e-3}))
    assert (
        "none of 3 complete trials (2 ended by the guard kl_limit, 1 diverged) has a checkpoint"
        in found.reason
    )
