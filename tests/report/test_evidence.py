"""What the statistics say of a study, on the page and as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_study import FakeTrial, trial, typical_trials, write_study

from kltune.metrics.jsonl import encode
from kltune.report.evidence import evidence_facts, evidence_sections, gather_evidence
from kltune.report.recommend import recommend
from kltune.report.rows import read_study
from kltune.trial.outcome import StopReason

PARTS = ("confirmation", "looks_at_test", "noise", "power", "peaks", "law", "golds", "forecast")


def found(folder: Path, trials: list[FakeTrial]):
    study = read_study(write_study(folder, trials))
    answer = recommend(study)
    return study, answer, gather_evidence(study, answer)


def test_the_same_record_says_the_same(tmp_path: Path) -> None:
    study, answer, first = found(tmp_path, typical_trials())
    facts = evidence_facts(study, answer, first)
    assert tuple(facts) == PARTS
    assert facts == evidence_facts(study, answer, gather_evidence(study, answer))
    assert json.loads(encode(facts))


def test_the_page_and_the_data_speak_of_the_same_trials(tmp_path: Path) -> None:
    study, answer, evidence = found(tmp_path, typical_trials())
    facts = evidence_facts(study, answer, evidence)
    with_gold = {row.number for row in study.trials if any(c.step > 0 for c in row.checkpoints)}
    assert {row["trial"] for row in facts["peaks"]} <= with_gold
    assert [s.anchor for s in evidence_sections(study, answer, evidence) if s.blocks] == [
        *("noise", "power", "peaks", "law")
    ]


@pytest.mark.parametrize(
    "trials",
    [
        [],
        [trial(0.1, steps=0, reason=None)],
        [trial(0.1, steps=3, reason=StopReason.ERROR, detail="boom")],
        [trial(0.1)],
    ],
    ids=["nothing", "not evaluated", "failed", "one trial"],
)
def test_a_study_that_says_little_has_few_sections_and_no_error(
    tmp_path: Path, trials: list[FakeTrial]
) -> None:
    study, answer, evidence = found(tmp_path, trials)
    facts = evidence_facts(study, answer, evidence)
    assert json.loads(encode(facts))
    shown = [s.anchor for s in evidence_sections(study, answer, evidence) if s.blocks]
    assert set(shown) <= {"noise", "power", "peaks", "law"}
