from __future__ import annotations

import io
from pathlib import Path

import pytest
from fake_study import trial, typical_trials, write_study
from rich.console import Console, RenderableType

from kltune.report.summary import summary
from kltune.screen.ending import final_summary, near
from kltune.trial.outcome import StopReason


def text_of(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(renderable)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_end_shows_answer_nearest_other_files_share_and_next_command(
    width: int, tmp_path: Path
) -> None:
    folder = write_study(tmp_path, typical_trials())
    renderable = final_summary(
        summary(folder), [Path("a.html")], next_command="kltune report x", bookkeeping_frac=0.021
    )
    text = text_of(renderable, width)
    assert "Use " in text
    assert "can't be told apart from the best on these prompts, one seed" in text
    assert "Of the settings that are told apart from the best the nearest is trial" in text
    assert "Against" in text
    assert "beta = 0 arm" in text
    assert "24 of 24 trials" in text
    assert "2.1 % of the wall time" in text
    assert "kltune report x" in text


def test_the_end_says_how_often_guards_spoke(tmp_path: Path) -> None:
    said = [("truncation", 30, "60 % cut")]
    dropped = trial(0.2, steps=40, reason=StopReason.GOLD_DROP, detail="gold fell", warnings=said)
    folder = write_study(tmp_path / "a", [trial(0.1, warnings=said), dropped])
    text = text_of(final_summary(summary(folder), [], next_command="kltune report x"))
    assert "Guards trials ended: gold_drop 1; trials warned of: truncation 2" in text
    quiet = write_study(tmp_path / "b", [trial(0.1)])
    assert "Guards" not in text_of(final_summary(summary(quiet), [], next_command="x"))


def test_no_feasible_trial_ends_with_what_to_change(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [trial(0.0)], objective={"kl_limit": 1e-3})
    text = text_of(final_summary(summary(folder), [], next_command="kltune report x"))
    assert "No feasible trial" in text
    assert "What to change" in text


def test_a_path_below_the_current_folder_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert near(tmp_path / "studies" / "a") == Path("studies/a")
    assert near(Path("studies/a")) == Path("studies/a")
    assert near(tmp_path.parent) == tmp_path.parent
