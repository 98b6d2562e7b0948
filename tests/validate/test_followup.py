from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_study import trial, write_study
from validate_case import arm, comparison, confirmation

from kltune.confirm.result import ConfirmResult, Gate, Place
from kltune.grade import Grade
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.transfer.result import Kind
from kltune.validate.followup import confirmed_line, transfer_line, untested


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
    assert line.shown.endswith("looked at once")
    assert confirmed_line(found[1], replace(confirmed, looks=2)).shown.endswith("looked at 2 times")


def test_seeds_beyond_the_limit_are_warned_of(found: Found) -> None:
    whole = confirmation(0)
    own = replace(arm(0, "recommended", "trial 0"), over_limit=2)
    line = confirmed_line(found[1], replace(whole, arms=(own, *whole.arms[1:])))
    assert line.grade is Grade.WARN
    assert "2 of 3 above the KL limit of 0.5 nats/token at the stop" in line.meaning


def test_seeds_that_fail_are_counted_and_warned_of_though_the_winner_stays(found: Found) -> None:
    whole = confirmation(0)
    main, start = whole.main, replace(arm(1, "start", "start"), number=None)
    places = (
        replace(main.places[0], by_seed=(0.47, 1.0, 1.1)),
        main.places[1],
        Place(2, 0.1, 0.0, 0.2, 0.1, (0.1, 0.1, 0.1), None),
    )
    main = replace(main, names=(*main.names, "start"), places=places)
    line = confirmed_line(found[1], replace(whole, arms=(*whole.arms, start), judgements=(main,)))
    assert line.grade is Grade.WARN
    assert "some of its seeds fail" in line.meaning
    assert "1 of 3 ends at 0.470" in line.meaning
    assert "0 of 3 above the KL limit" in line.meaning


def test_of_a_tie_it_is_said_that_a_true_difference_shows_in_8_of_10(found: Found) -> None:
    line = confirmed_line(found[1], confirmation(0, "tied"))
    assert (
        "a true difference of 0.100 gold shows in about 8 of 10 such confirmations" in line.action
    )
    assert "Single seeds: trial 0: lowest" in line.meaning


def test_repeats_for_the_noise_floor_are_no_seeds_of_the_numbers(tmp_path: Path) -> None:
    trials = [trial(0.1), trial(0.0, origin="noise:1", seed=1)]
    study = read_study(write_study(tmp_path / "noisy", trials))
    assert any("of 1 seed and" in text for text in untested(study, None, []))


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
