from __future__ import annotations

from pathlib import Path

from tracker_case import Trial

from kltune.metrics.news import News


def test_a_folder_is_news_until_it_was_noted_and_again_when_something_came(tmp_path: Path) -> None:
    news = News(tmp_path)
    assert news.look() == []
    trials = [Trial(tmp_path, number) for number in (2, 1)]
    for trial in trials:
        trial.config()
    (tmp_path / "trials" / "00003").mkdir()  # no trial yet
    folders = [trials[1].folder, trials[0].folder]
    assert news.look() == folders
    for folder in folders:
        news.note(folder)
    assert news.look() == []
    assert news.going_on() == folders
    trials[0].steps(1, 1, 10)
    assert news.look() == [trials[0].folder]


def test_steps_alone_are_no_news(tmp_path: Path) -> None:
    trial = Trial(tmp_path, 1)
    trial.config()
    news = News(tmp_path)
    news.note(trial.folder)
    (trial.folder / "metrics.jsonl").write_text("{}\n")
    assert news.look() == []


def test_a_trial_that_ended_is_news_when_it_goes_on(tmp_path: Path) -> None:
    trial = Trial(tmp_path, 1)
    trial.config()
    trial.end(1, "interrupted", "interrupted", "SIGTERM")
    news = News(tmp_path)
    news.note(trial.folder)
    news.note_over(trial.folder)
    assert news.look() == []
    assert news.going_on() == []
    trial.config(attempt=2)
    assert news.look() == [trial.folder]
    news.note(trial.folder)
    assert news.going_on() == [trial.folder]
