from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_study import trial, write_study
from validate_case import arm, comparison, confirmation

from kltune.confirm.result import ConfirmResult, Gate
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.transfer.result import Kind
from kltune.validate.followup import confirmed_line, transfer_line, untested
from kltune.validate.result import Grade


@pytest.fixture
def found(tmp_path: Path) -> tuple[StudyRows, Recommendation]:
    study = read_study(write_study(tmp_path / "study", [trial(0.1)]))
    answer = recommend(study)
    assert isinstance(answer, Recommendation)
    return study, answer


Found = tuple[StudyRows, Recommendation]


def test_without_a_confirmation_the_command_is_named(found: Found) -> None:
    line = confirmed_line(found[1], None)
    assert line.grade is Grade.WARN
    assert "kltune confirm" in line.action


@pytest.mark.parametrize(
    ("confirmed", "grade", "told"),
    [
        (confirmation(0, "stays"), Grade.PASS, "stays"),
        (confirmation(0, "tied"), Grade.WARN, "can't be told apart"),
        (confirmation(0, "changes"), Grade.FAIL, "recipe verl-ppo"),
        (confirmation(5, "stays"), Grade.WARN, "another setting than"),
        (
            confirmation(0, "stays", (Gate("gold > baseline", False, "0.1"),)),
            Grade.FAIL,
            "gold > baseline",
        ),
    ],
    ids=["stays", "tied", "changes", "another trial", "a gate fails"],
)
def test_what_the_confirmation_says_is_taken_over(
    found: Found, confirmed: ConfirmResult, grade: Grade, told: str
) -> None:
    line = confirmed_line(found[1], confirmed)
    assert line.grade is grade
    assert told in line.meaning
    assert line.number == pytest.approx(0.12)
    assert "looked at 1 time" in line.shown


def test_seeds_beyond_the_limit_are_warned_of(found: Found) -> None:
    whole = confirmation(0)
    own = replace(arm(0, "recommended", "trial 0"), over_limit=2)
    line = confirmed_line(found[1], replace(whole, arms=(own, *whole.arms[1:])))
    assert line.grade is Grade.WARN
    assert "2 of its seeds" in line.meaning


@pytest.mark.parametrize(
    ("kind", "grade"),
    [(Kind.TRANSFERS, Grade.PASS), (Kind.SHIFTS, Grade.WARN), (Kind.UNKNOWN, Grade.WARN)],
)
def test_the_verdict_over_sizes_is_taken_over(kind: Kind, grade: Grade) -> None:
    line = transfer_line([comparison(Kind.UNKNOWN), comparison(kind)])
    assert (line.grade, line.meaning, line.number) == (grade, "In words.", 1.1)
    assert line.shown.startswith("2 sizes: ")


def test_what_was_not_looked_at_is_listed(found: Found) -> None:
    study, _ = found
    bare, full = untested(study, None, []), untested(study, confirmation(), [comparison()])
    assert len(bare) == len(full) + 2
    assert any("80 steps" in text for text in full)
