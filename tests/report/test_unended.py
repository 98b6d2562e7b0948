from __future__ import annotations

import dataclasses
from pathlib import Path

from fake_study import trial, write_study

from kltune.report.rows import read_study
from kltune.report.unended import progress_words, state_words
from tests.standing_case import held_by_another_process


def test_a_trial_without_an_end_runs_only_where_a_process_does(tmp_path: Path) -> None:
    path = write_study(tmp_path, [trial(0.1), trial(0.2, steps=30, reason=None)])
    idle = read_study(path)
    assert progress_words(idle) == (
        "2 of 24 trials: 1 unfinished (no process is known to run them), 1 complete"
    )
    assert [state_words(idle, row) for row in idle.trials] == ["complete", "unfinished"]
    with held_by_another_process(path):
        at_work = read_study(path)
    assert progress_words(at_work) == "2 of 24 trials: 1 running, 1 complete"
    unknown = dataclasses.replace(idle, is_running=None)
    assert progress_words(unknown) == "2 of 24 trials: 1 running or cut off, 1 complete"
