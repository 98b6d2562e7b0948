from __future__ import annotations

from pathlib import Path

from fake_study import trial, typical_trials, write_study

from kltune.report.document import Document
from kltune.report.evidence import gather_evidence
from kltune.report.markdown import render_markdown
from kltune.report.recommend import recommend
from kltune.report.rows import StudyRows, read_study
from kltune.report.sections import compose
from kltune.spec.trial import ControllerKind
from kltune.study.importance import Importance

NO_IMPORTANCE = Importance(
    unavailable="all completed trials have the same value", num_used=2, num_trials=2
)


def document_of(study: StudyRows, importance: Importance = NO_IMPORTANCE) -> Document:
    answer = recommend(study)
    return compose(study, answer, importance, gather_evidence(study, answer))


def text_of(study: StudyRows, importance: Importance = NO_IMPORTANCE) -> str:
    return render_markdown(document_of(study, importance))


def test_a_typical_report_has_all_its_parts_with_the_answer_first(tmp_path: Path) -> None:
    document = document_of(read_study(write_study(tmp_path, typical_trials())))
    assert document.is_answer
    assert [section.anchor for section in document.sections] == [
        "recommendation",
        "noise",
        "power",
        "peaks",
        "law",
        "frontier",
        "steps",
        "tokens",
        "controllers",
        "guards",
        "trials",
        "importance",
        "samples",
        "untested",
        "cost",
        "provenance",
    ]
    assert document.subtitle == "24 of 24 trials: 21 complete, 2 pruned, 1 failed"


def test_importance_says_how_many_trials_it_used(tmp_path: Path) -> None:
    # field case B13
    study = read_study(write_study(tmp_path, []))
    text = text_of(study, Importance({"beta": 1.0}, None, 7, 15))
    assert "7 of 15 trials used" in text


def test_missing_importance_says_why(tmp_path: Path) -> None:
    # field case B12
    text = text_of(read_study(write_study(tmp_path, [])))
    assert "not available: all completed trials have the same value (2 of 2 trials used)" in text


def test_the_controllers_formula_is_there_only_where_one_was_used(tmp_path: Path) -> None:
    steered = trial(0.1, controller=ControllerKind.PROPORTIONAL, target_kl=0.05, horizon=640)
    with_one = text_of(read_study(write_study(tmp_path / "a", [steered])))
    without = text_of(read_study(write_study(tmp_path / "b", [trial(0.1)])))
    assert "Proportional controller: beta ←" in with_one
    assert "Proportional controller" not in without
    assert "Fixed controller: beta is constant" in without


def test_without_overoptimisation_the_report_says_that_there_was_none(tmp_path: Path) -> None:
    rising = [n / 10 for n in range(9)]
    assert "No trial was over-optimised" in text_of(
        read_study(write_study(tmp_path, [trial(0.2, gold=rising)]))
    )
