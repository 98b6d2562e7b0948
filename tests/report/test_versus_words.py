"""The sentences say which is higher, by how much, and what they rest on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fake_study import trial
from versus_case import HIGH, a_study, findings, other_trials, two

from kltune.report.versus_words import answer_rows, cautions, headline


def test_a_difference_that_is_told_names_the_better_one(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    for paths in ((low, high), (high, low)):
        words = headline(findings(*paths))
        assert words.startswith(
            "The recommended setting of high has more gold than that of low, by 0."
        )
        assert "95 % interval +0." in words
        assert "paired on the same 64 prompts; noise of prompts only" in words


def test_a_difference_that_is_not_told_claims_nothing(tmp_path: Path) -> None:
    near = a_study(tmp_path / "near", 0.41, scatter=1)
    words = headline(findings(a_study(tmp_path / "low"), near))
    assert words.startswith("The recommended settings of low and near can't be told apart: ")
    assert "(95 % interval -0." in words


def test_the_same_run_is_no_difference(tmp_path: Path) -> None:
    words = headline(findings(a_study(tmp_path / "a"), a_study(tmp_path / "b")))
    assert "differ by 0.000 gold on every prompt alike, as the same run does" in words


def test_of_several_the_pairs_that_are_told_are_named(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    near = a_study(tmp_path / "near", 0.41, scatter=2)
    words = headline(findings(low, high, near))
    assert words.count("has more gold than that of") == 2
    assert "low and near" not in words
    again = a_study(tmp_path / "again", 0.4, scatter=3)
    assert "No two of these 3 studies can be told apart" in headline(findings(low, near, again))


def test_no_recommendation_is_said(tmp_path: Path) -> None:
    low, _ = two(tmp_path)
    found = findings(low, other_trials(tmp_path / "empty", []))
    assert headline(found).endswith("empty recommends no setting.")
    rows = {row[0]: row[1:] for row in answer_rows(found.sides)}
    assert rows["Recommended"] == ("trial 0", "none: No trial has started yet.")
    assert rows["Setting"][1] == "–"


def test_answers_stand_side_by_side_with_intervals_and_both_kl_units(tmp_path: Path) -> None:
    found = findings(*two(tmp_path))
    rows = {row[0]: row[1:] for row in answer_rows(found.sides)}
    assert all("95 % interval" in text and "64 select prompts" in text for text in rows["Gold"])
    assert all("nats/token = " in t and "nats/sequence" in t for t in rows["KL at the peak"])
    assert rows["Gold on fresh seeds and test prompts"] == ("–", "–")
    assert rows["sigma_R (raw proxy reward)"] == ("0.62", "0.62")


def test_a_confirmed_difference_is_told_too(tmp_path: Path) -> None:
    found = findings(*two(tmp_path))
    pair = replace(found.pairs[0], confirmed=(0.25, 0.1, 0.4))
    words = headline(replace(found, pairs=(pair,)))
    assert words.endswith(
        " On fresh seeds and test prompts high minus low is +0.250 gold (95 % interval +0.100 to +0.400)."
    )


def test_another_model_points_to_transfer_with_a_command_that_can_be_typed(tmp_path: Path) -> None:
    low, _ = two(tmp_path)
    larger = a_study(tmp_path / "larger one", HIGH, scatter=1, model={"base": "some/larger"})
    (words,) = cautions(findings(low, larger))
    assert words.endswith(f"kltune transfer {low} '{larger}'")


def test_other_limits_more_trials_and_running_ones_are_warned_of(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    assert cautions(findings(low, high)) == ()
    objective = {"metric": "gold_peak", "kl_limit": 0.2}
    tight = a_study(tmp_path / "tight", HIGH, scatter=1, objective=objective)
    assert "The KL limits differ" in cautions(findings(low, tight))[0]
    running = [trial(0.1), trial(0.2), trial(0.3), trial(0.4, reason=None, steps=5)]
    texts = cautions(findings(low, other_trials(tmp_path / "running", running)))
    assert "ran 3, 4 trials" in texts[0]
    assert texts[1] == "With trials that have not ended, so this may change: running."
