"""A study folder in; report.html, report.md and report.json in that folder out."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from kltune.errors import RunError
from kltune.metrics.jsonl import write_json
from kltune.report.compare import worst_overoptimised
from kltune.report.evidence import evidence_facts, gather_evidence
from kltune.report.markdown import render_markdown
from kltune.report.page import render_page
from kltune.report.provenance import reproduce
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import read_study
from kltune.report.sections import compose
from kltune.report.summary import HTML, curve_data, summarise
from kltune.report.tokens_blocks import token_facts
from kltune.study.importance import Importance, measure_importance


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """The three twins; all say the same."""

    html: Path
    markdown: Path
    json: Path


def build_report(study_path: Path) -> ReportPaths:
    """Write the report from the record, whatever state the study is in.

    Each file is replaced whole, so a reader never sees half of one.

    Raises:
        StudyError: The folder is not a study, or a newer kltune wrote it.
        RunError: The folder can't be written to.
    """
    study = read_study(study_path)
    answer = recommend(study)
    importance = _importance(study_path)
    evidence = gather_evidence(study, answer)
    document = compose(study, answer, importance, evidence)
    paths = ReportPaths(study_path / HTML, study_path / "report.md", study_path / "report.json")
    data = {
        **summarise(study, answer),
        "report": HTML,
        "importance": {
            "shares": importance.shares,
            "unavailable": importance.unavailable,
            "num_used": importance.num_used,
            "num_trials": importance.num_trials,
        },
        "evidence": evidence_facts(study, answer, evidence),
        "tokens": token_facts(
            answer.best if isinstance(answer, Recommendation) else None,
            worst_overoptimised(study.trials),
        ),
        "curves": [curve_data(row) for row in study.trials],
        "environment": dict(study.environment),
        "command": reproduce(study),
    }
    try:
        _replace(paths.html, render_page(document))
        _replace(paths.markdown, render_markdown(document))
        write_json(paths.json, data)
    except OSError as error:
        why = f"the report can't be written there: {error.strerror or error}"
        raise RunError(f"{study_path}: {why}") from error
    return paths


def _importance(study_path: Path) -> Importance:
    """Importance whose reason, if there is none, names no folder of this machine."""
    if not (study_path / "study.db").exists():
        why = "the folder holds no study.db"
        return Importance(unavailable=why)
    found = measure_importance(study_path)
    if found.unavailable is None:
        return found
    return replace(found, unavailable=found.unavailable.replace(str(study_path), study_path.name))


def _replace(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
