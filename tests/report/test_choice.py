from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from confirm_case import judged, result_of, study
from fake_study import trial, write_study

from kltune.confirm.result import ConfirmResult
from kltune.metrics.jsonl import write_json
from kltune.report.choice import Choice, choose, stop_point
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study


def chosen(folder: Path, result: ConfirmResult | None, **spec: object) -> tuple[StudyRows, Choice]:
    path = study(folder / "s", **spec)
    if result is not None:
        write_json(path / "confirm" / "confirm.json", result.as_json())
    rows = read_study(path)
    found = recommend(rows)
    assert isinstance(found, Recommendation)
    return rows, choose(rows, found)


def numbered(result: ConfirmResult, *numbers: int) -> ConfirmResult:
    """The same with these trials as its first arms."""
    arms = tuple(replace(a, number=n) for a, n in zip(result.arms, numbers, strict=False))
    return replace(result, arms=(*arms, *result.arms[len(numbers) :]))


def best_of(folder: Path) -> int:
    found = recommend(read_study(study(folder / "probe")))
    assert isinstance(found, Recommendation)
    return found.best.number


def test_without_a_confirmation_it_is_the_searchs_setting_and_window(tmp_path: Path) -> None:
    _, choice = chosen(tmp_path, None)
    assert choice.row is choice.found.best
    assert choice.confirmation is None
    assert not choice.is_changed
    window = choice.found.plateau
    assert (choice.first_step, choice.last_step) == (window.first_step, window.last_step)


def test_a_confirmation_of_another_setting_counts_for_nothing(tmp_path: Path) -> None:
    other = (best_of(tmp_path) + 1) % 7
    result = numbered(result_of(judged([1.0, 1.0, 0.2, 0.0])), other)
    _, choice = chosen(tmp_path, result)
    assert choice.confirmation is None


def test_a_setting_that_fresh_seeds_put_above_it_is_the_one_to_type(tmp_path: Path) -> None:
    best = best_of(tmp_path)
    other = next(n for n in (4, 5, 6) if n != best)
    result = numbered(result_of(judged([0.2, 1.5, 0.2, 0.0])), best, other)
    assert result.main.verdict == "changes"
    _, choice = chosen(tmp_path, result)
    assert choice.is_changed
    assert (choice.row.number, choice.arm) == (other, 1)
    assert choice.found.best.number == best


def test_a_winner_that_is_no_trial_on_record_changes_nothing(tmp_path: Path) -> None:
    result = numbered(result_of(judged([0.2, 1.5, 0.2, 0.0])), best_of(tmp_path), 99)
    _, choice = chosen(tmp_path, result)
    assert (choice.is_changed, choice.arm) == (False, 0)


def test_trials_that_are_judged_by_their_end_stop_there(tmp_path: Path) -> None:
    gold = (0.2, 0.9, *[0.5] * 7)
    for metric, step in (("gold_peak", 10), ("gold_final", 80)):
        path = write_study(
            tmp_path / metric,
            [trial(0.3, gold=gold)],
            objective={"metric": metric, "kl_limit": None},
        )
        rows = read_study(path)
        found = recommend(rows)
        assert isinstance(found, Recommendation)
        choice = choose(rows, found)
        point = stop_point(rows, choice.row)
        assert point is not None
        assert point.step == step
        assert choice.first_step <= step <= choice.last_step
