from __future__ import annotations

from pathlib import Path

from fake_study import trial, typical_trials, write_study

from kltune.report.recommend import NoAnswer, Recommendation, recommend
from kltune.report.rows import read_study
from kltune.validate.lines import Evidence, _around, validate

NOTHING = Evidence((), (), "not asked", None, ())


def test_every_line_of_a_study_has_a_number_or_says_why_not(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "study", typical_trials()))
    answer = recommend(study)
    assert isinstance(answer, Recommendation)
    found = validate(study, answer, NOTHING)
    assert len({line.name for line in found.lines}) == len(found.lines) == 11
    for line in found.lines:
        assert line.meaning.endswith((".", ")"))
        assert line.shown
        assert line.threshold
    assert f"Trial {answer.best.number}" in found.setting
    assert "Stop" in found.setting


def test_without_an_answer_there_is_one_line_and_it_fails(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "study", [trial(0.001, learning_rate=0.02)]))
    answer = recommend(study)
    assert isinstance(answer, NoAnswer)
    found = validate(study, answer, NOTHING)
    assert [line.name for line in found.lines] == ["enough_trials"]
    assert found.verdict == "no-go"


def test_completions_come_from_the_stop_first(tmp_path: Path) -> None:
    rows = [{"step": step} for step in range(0, 90, 10) for _ in range(8)]
    steps = {row["step"] for row in _around(rows, (40, 50))}
    assert {40, 50} <= steps
    assert 0 not in steps
    assert len(_around(rows, (40, 50))) == 24
    assert {row["step"] for row in _around(rows, (30, 70))} == {30, 40, 50, 60, 70}
