"""Which exit code a finished search has, and what a member that found nothing to do leaves."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from kltune.errors import ExitCode
from kltune.launch.member import settled_code, verdict_of
from kltune.study.lock import enter_study
from tests.fake_study import typical_trials, write_study


@pytest.mark.parametrize(
    ("best", "states", "code"),
    [
        ({"number": 1}, ["complete", "failed"], ExitCode.DONE),
        (None, ["complete", "pruned"], ExitCode.NO_FEASIBLE_TRIAL),
        (None, ["complete", "failed"], ExitCode.NO_FEASIBLE_TRIAL),
        (None, ["failed", "failed"], ExitCode.RUN_ERROR),
        (None, [], ExitCode.NO_FEASIBLE_TRIAL),
    ],
)
def test_exit_code_of_a_finished_search(best: object, states: list[str], code: ExitCode) -> None:
    facts = {"best": best, "trials": [{"state": state} for state in states]}
    assert verdict_of(facts) is code


def test_a_wall_budget_that_ended_early_is_no_failure() -> None:
    facts = {"best": None, "trials": [{"state": "interrupted"}]}
    assert verdict_of(facts, is_cut_short=True) is ExitCode.DONE
    failed = {"best": None, "trials": [{"state": "failed"}]}
    assert verdict_of(failed, is_cut_short=True) is ExitCode.RUN_ERROR


def test_a_member_that_finds_nothing_to_do_writes_the_report_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, result = write_study(tmp_path, typical_trials()), io.StringIO()
    with enter_study(study, lambda: True, lambda: False) as hold:
        assert hold is not None
        assert settled_code(study, hold, result) is ExitCode.DONE
    assert (study / "report.html").is_file()
    assert "report.html" in capsys.readouterr().err
    assert json.loads(result.getvalue())["schema"] == 1


def test_while_others_work_it_leaves_the_report_to_them(tmp_path: Path) -> None:
    study = write_study(tmp_path, typical_trials())
    with (
        enter_study(study, lambda: True, lambda: False),
        enter_study(study, lambda: True, lambda: False) as hold,
    ):
        assert hold is not None
        assert settled_code(study, hold, None) is ExitCode.DONE
    assert not (study / "report.html").exists()
