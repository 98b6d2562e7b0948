"""A study folder in; report.html, report.md and report.json in that folder out, or a page to serve."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kltune.errors import RunError
from kltune.metrics.jsonl import write_json
from kltune.report.compare import worst_overoptimised
from kltune.report.document import Document
from kltune.report.evidence import Evidence, evidence_facts, gather_evidence
from kltune.report.markdown import render_markdown
from kltune.report.page import render_page
from kltune.report.provenance import reproduce
from kltune.report.recommend import Answer, Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.report.sections import compose
from kltune.report.summary import HTML, curve_data, summarise
from kltune.report.tokens_blocks import token_facts
from kltune.study.importance import Importance, measure_importance
from kltune.study.place import holds_study
from kltune.trial.outcome import TrialState


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """The three twins; all say the same."""

    html: Path
    markdown: Path
    json: Path


@dataclass(frozen=True, slots=True)
class LivePage:
    """The page as it is served while the sweep runs."""

    html: str
    is_over: bool
    """Whether as many trials have ended as the budget asks for, and none runs."""


@dataclass(frozen=True, slots=True)
class _Findings:
    """What the report says, before it is laid out."""

    study: StudyRows
    answer: Answer
    importance: Importance
    evidence: Evidence


def build_report(study_path: Path) -> ReportPaths:
    """Write the report from the record, whatever state the study is in.

    Each file is replaced whole, so a reader never sees half of one.

    Raises:
        StudyError: The folder is not a study, or a newer kltune wrote it.
        RunError: The folder can't be written to.
    """
    found = _find(study_path)
    document = _compose(found)
    paths = ReportPaths(study_path / HTML, study_path / "report.md", study_path / "report.json")
    try:
        _replace(paths.html, render_page(document))
        _replace(paths.markdown, render_markdown(document))
        write_json(paths.json, _data(found))
    except OSError as error:
        why = f"the report can't be written there: {error.strerror or error}"
        raise RunError(f"{study_path}: {why}") from error
    return paths


def compose_report(study_path: Path, *, is_live: bool = False) -> Document:
    """Lay the report out from the record; nothing is written.

    Raises:
        StudyError: The folder is not a study, or a newer kltune wrote it.
    """
    return replace(_compose(_find(study_path)), is_live=is_live)


def render_live(study_path: Path) -> str:
    """Draw the page that asks its server for news. Raises what `compose_report` does."""
    return draw_live(study_path).html


def draw_live(study_path: Path) -> LivePage:
    """Draw the page that asks its server for news, and say whether any are due. Raises what `compose_report` does."""
    found = _find(study_path)
    html = render_page(replace(_compose(found), is_live=True))
    return LivePage(html, is_over=is_over(found.study))


def _find(study_path: Path) -> _Findings:
    study = read_study(study_path)
    answer = recommend(study)
    return _Findings(study, answer, _importance(study_path), gather_evidence(study, answer))


def _compose(found: _Findings) -> Document:
    return compose(found.study, found.answer, found.importance, found.evidence)


def _data(found: _Findings) -> dict[str, Any]:
    study, answer, importance = found.study, found.answer, found.importance
    return {
        **summarise(study, answer),
        "report": HTML,
        "importance": {
            "shares": importance.shares,
            "unavailable": importance.unavailable,
            "num_used": importance.num_used,
            "num_trials": importance.num_trials,
            "parameters": [asdict(parameter) for parameter in importance.parameters],
        },
        "evidence": evidence_facts(study, answer, found.evidence),
        "tokens": token_facts(
            answer.best if isinstance(answer, Recommendation) else None,
            worst_overoptimised(study.trials),
        ),
        "curves": [curve_data(row) for row in study.trials],
        "environment": dict(study.environment),
        "command": reproduce(study),
    }


def is_over(study: StudyRows) -> bool:
    """Whether as many trials have ended as the budget asks for, and none runs."""
    ended = [row for row in study.trials if row.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    return len(ended) >= study.spec.budget.trials and not study.of_state(TrialState.RUNNING)


def _importance(study_path: Path) -> Importance:
    """Importance whose reason, if there is none, names no folder of this machine."""
    if not holds_study(study_path):
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
