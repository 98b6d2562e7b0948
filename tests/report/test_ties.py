from __future__ import annotations

import dataclasses
from pathlib import Path

import confirm_case
from fake_study import trial, write_study

from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.report.ties import confirmed_tie_words, tie_words

WIDE = (0.2, *[0.8] * 8)


def said(folder: Path, *fakes: object) -> tuple[str, Recommendation]:
    study: StudyRows = read_study(write_study(folder, list(fakes)))  # type: ignore[arg-type]
    found = recommend(study)
    assert isinstance(found, Recommendation)
    return tie_words(study, found), found


def test_the_best_tied_recipe_and_beta_zero_are_named_with_an_interval(tmp_path: Path) -> None:
    text, found = said(
        tmp_path,
        trial(0.3, gold=WIDE, value=0.90),
        trial(0.02, gold=WIDE, origin="baseline:verl-ppo", value=0.89),
        trial(0.03, gold=WIDE, origin="baseline:deepseekmath", value=0.87),
        trial(0.0, gold=WIDE, origin="zero", value=0.88),
    )
    assert found.best.number == 0
    difference = found.baselines[0].difference
    assert difference is not None
    assert text == (
        "Not told apart from 3 other settings (betas from 0 to 0.03), among them beta = 0 and the recipe verl-ppo (this "
        f"one has +0.010 gold, 95 % interval {difference.low:+.3f} to {difference.high:+.3f})."
    )


def test_a_baseline_that_is_nominally_better_is_called_so(tmp_path: Path) -> None:
    hump = (0.2, 0.4, 0.9, 0.5, *[0.3] * 5)
    text, found = said(
        tmp_path,
        trial(1.0, gold=WIDE, value=0.88),
        trial(0.5, gold=hump, origin="baseline:verl-ppo", value=0.9),
    )
    assert found.best.number == 0
    assert text.startswith(
        "Not told apart from the recipe verl-ppo (nominally better: this one has -0.020 gold, 95 %"
    )


def test_the_range_is_of_the_others_alone_and_of_one_other_there_is_none(tmp_path: Path) -> None:
    text, found = said(
        tmp_path / "a", *[trial(b, gold=WIDE, value=v) for b, v in ((0.9, 0.9), (0.01, 0.88))]
    )
    assert found.best.setting.beta == 0.9
    assert text == "Not told apart from 1 other setting."
    pairs = ((0.9, 0.9), (0.01, 0.88), (0.2, 0.88))
    text, found = said(tmp_path / "b", *[trial(b, gold=WIDE, value=v) for b, v in pairs])
    assert found.best.setting.beta == 0.9
    assert text == "Not told apart from 2 other settings (betas from 0.01 to 0.2)."


def test_betas_near_one_another_are_not_worth_their_range(tmp_path: Path) -> None:
    text, _ = said(tmp_path, *[trial(beta, gold=WIDE) for beta in (0.2, 0.5, 0.7)])
    assert text == "Not told apart from 2 other settings."


def test_the_one_feasible_trial_is_said_to_be_compared_with_nothing(tmp_path: Path) -> None:
    failed = trial(0.1, steps=20, reason="error", detail="x")
    text, _ = said(tmp_path / "a", trial(0.2), failed, failed)
    assert text == ("It is the only feasible one of 3 trials: there is nothing to compare it with.")
    assert said(tmp_path / "b", trial(0.2))[0].startswith("It is the only trial on record")


def test_a_winner_told_apart_from_all_has_no_doubt(tmp_path: Path) -> None:
    clear = [trial(0.2, gold=(0.2, *[0.9] * 8)), trial(0.9, gold=(0.2,) * 9)]
    assert said(tmp_path, *clear)[0] == ""


def test_a_confirmation_names_its_best_baseline_where_it_is_tied() -> None:
    tied = confirm_case.result_of(confirm_case.judged([1.0, 1.0, 1.02, 0.0]))
    best = tied.main.best_baseline
    assert best is not None
    words = confirmed_tie_words(tied)
    assert (
        f"{best.difference:+.3f} gold, 95 % interval {best.low:+.3f} to {best.high:+.3f}" in words
    )
    assert words.startswith(", among them the recipe trl-grpo-0.18")
    assert ("nominally better" in words) is (best.difference < 0)
    clear = confirm_case.result_of(confirm_case.judged([2.0, 1.0, 0.2, 0.0]))
    assert confirmed_tie_words(clear) == ""


def test_a_confirmation_that_ties_with_beta_zero_says_so() -> None:
    tied = confirm_case.result_of(confirm_case.judged([1.0, 0.99, 1.02, 0.0]))
    arms = list(tied.arms)
    arms[1] = dataclasses.replace(arms[1], origin="zero")
    words = confirmed_tie_words(dataclasses.replace(tied, arms=tuple(arms)))
    assert words.startswith(", among them beta = 0 and the recipe")
