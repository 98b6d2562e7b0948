"""The end of a session: which exit code a finished search has."""

from __future__ import annotations

import pytest

from kltune.errors import ExitCode
from kltune.launch.session import verdict_of


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
