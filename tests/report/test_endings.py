from __future__ import annotations

import dataclasses
from pathlib import Path

from fake_study import trial, typical_trials, write_study

from kltune.report.endings import Ending, ending_of, endings
from kltune.report.rows import TrialRow, read_study
from kltune.trial.outcome import StopReason


def row_of(path: Path) -> TrialRow:
    (row,) = read_study(write_study(path, [trial(0.1)])).trials
    return row


def with_reason(row: TrialRow, reason: StopReason) -> TrialRow:
    assert row.outcome is not None
    verdict = dataclasses.replace(row.outcome.verdict, reason=reason)
    return dataclasses.replace(row, outcome=dataclasses.replace(row.outcome, verdict=verdict))


def test_every_way_to_end_has_a_look_of_its_own(tmp_path: Path) -> None:
    row = row_of(tmp_path)
    found = {reason: ending_of(with_reason(row, reason)) for reason in StopReason}
    alike = {StopReason.ERROR, StopReason.OUT_OF_MEMORY, StopReason.DISK}
    looks = {
        (ending.colour, ending.pattern) for reason, ending in found.items() if reason not in alike
    }
    assert len(looks) == len(StopReason) - len(alike)
    assert len({ending.words for ending in found.values()}) == len(StopReason)
    assert found[StopReason.KL_JUMP].words == "guard kl_jump"


def test_a_trial_that_runs_is_said_to_run(tmp_path: Path) -> None:
    row = dataclasses.replace(row_of(tmp_path), outcome=None)
    assert ending_of(row).words == "no end on record"


def test_the_most_frequent_ending_comes_first(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, typical_trials()))
    found = endings(study.trials)
    counts = [len(rows) for _, rows in found]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == len(study.trials)
    assert isinstance(found[0][0], Ending)
