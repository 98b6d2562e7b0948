from __future__ import annotations

import dataclasses
from pathlib import Path

import confirm_case
from fake_study import trial, typical_trials, write_study

from kltune.metrics.jsonl import write_json
from kltune.report.document import Document, Hero
from kltune.report.evidence import gather_evidence
from kltune.report.markdown import render_markdown
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.report.sections import compose
from kltune.spec.trial import ControllerKind
from kltune.statistics.explained import Explained
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
        "details",
        "frontier",
        "map",
        "noise",
        "power",
        "peaks",
        "law",
        "steps",
        "tokens",
        "samples",
        "controllers",
        "guards",
        "timeline",
        "trials",
        "importance",
        "untested",
        "cost",
        "provenance",
    ]
    assert isinstance(document.sections[0].blocks[0], Hero)
    assert [sheet.number for sheet in document.sheets] == list(range(24))
    assert document.subtitle == "24 of 24 trials: 21 complete, 2 pruned, 1 failed"


def test_importance_says_how_many_trials_it_used(tmp_path: Path) -> None:
    # field case B13
    study = read_study(write_study(tmp_path, []))
    beta = Explained("beta", 0.8, 0.001, 7, is_found=True)
    text = text_of(study, Importance({"beta": 0.8}, None, 7, 15, (beta,)))
    assert "7 of 15 trials used" in text


def test_missing_importance_says_why(tmp_path: Path) -> None:
    # field case B12
    text = text_of(read_study(write_study(tmp_path, [])))
    assert "not available: all completed trials have the same value (2 of 2 trials used" in text


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


def test_without_an_answer_the_first_section_says_what_to_change(tmp_path: Path) -> None:
    document = document_of(read_study(write_study(tmp_path, [])))
    first = document.sections[0]
    assert (first.title, first.anchor) == ("What to change", "recommendation")
    assert not any(isinstance(block, Hero) for s in document.sections for block in s.blocks)
    assert "details" not in [section.anchor for section in document.sections]


def test_the_kl_of_a_confirmed_headline_is_that_of_the_fresh_seeds(tmp_path: Path) -> None:
    path = confirm_case.study(tmp_path)
    found = recommend(read_study(path))
    assert isinstance(found, Recommendation)
    result = confirm_case.result_of(confirm_case.judged([1.0, 1.0, 0.2, 0.0]))
    for number in (found.best.number, 0):
        arms = (dataclasses.replace(result.arms[0], number=number), *result.arms[1:])
        confirmed = dataclasses.replace(result, arms=arms)
        write_json(path / "confirm" / "confirm.json", confirmed.as_json())
        text = document_of(read_study(path)).headline
        assert ("at KL 0.1 nats/token = 1 nats/sequence. On 8 fresh seeds" in text) is (number != 0)


def test_one_trial_alone_is_no_clear_answer(tmp_path: Path) -> None:
    alone = document_of(read_study(write_study(tmp_path / "a", [trial(0.2)])))
    assert alone.is_doubtful
    assert "there is nothing to compare it with" in alone.headline
    clear = [trial(0.2, gold=(0.2, *[0.9] * 8)), trial(0.9, gold=(0.2,) * 9)]
    assert not document_of(read_study(write_study(tmp_path / "b", clear))).is_doubtful


def test_an_empty_study_says_nothing_of_values_that_are_not_there(tmp_path: Path) -> None:
    text = text_of(
        read_study(write_study(tmp_path, [])),
        Importance(unavailable="why", num_used=7, num_trials=15),
    )
    assert "trained once each" not in text
    assert "Values here are on the select prompts" not in text
    assert "7 of 15 trials used, of which 15 have no folder any more" in text


def test_a_headline_has_at_most_three_sentences(tmp_path: Path) -> None:
    path = confirm_case.study(tmp_path)
    found = recommend(read_study(path))
    assert isinstance(found, Recommendation)
    searched = document_of(read_study(path)).headline
    result = confirm_case.result_of(confirm_case.judged([1.0, 1.0, 1.0, 0.0]))
    for number in (found.best.number, 0):
        arms = (dataclasses.replace(result.arms[0], number=number), *result.arms[1:])
        confirmed = dataclasses.replace(result, arms=arms)
        write_json(path / "confirm" / "confirm.json", confirmed.as_json())
        text = document_of(read_study(path)).headline
        assert text.count(". ") <= 2
        assert ("Not told apart" in text) is (number == 0 and "Not told apart" in searched)
    assert searched.count(". ") <= 2
