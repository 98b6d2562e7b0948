"""A validation in, one page out as a document: HTML and Markdown come from the report's renderers, which escape it."""

from __future__ import annotations

from kltune.grade import Grade
from kltune.report.document import Block, Bullets, Document, Grid, Paragraph, Section
from kltune.validate.result import Validation

_HEADER = ("check", "measured", "threshold", "what it means", "what to do")
_TITLES = {Grade.FAIL: "Fails", Grade.WARN: "Warnings", Grade.PASS: "Passes"}
_MARKS = {Grade.FAIL: "✗", Grade.WARN: "!", Grade.PASS: "✓"}


def validation_page(found: Validation, study: str) -> Document:
    """The page; ``study``: path of the study's folder as a shell takes it, for the command."""
    sections = [
        Section(f"{_TITLES[grade]} ({len(lines)})", grade.value, _blocks(found, grade))
        for grade in (Grade.FAIL, Grade.WARN, Grade.PASS)
        if (lines := found.of_grade(grade))
    ]
    sections.append(Section("What was not tested", "untested", (Bullets(found.untested),)))
    sections.append(Section("How to read this", "reading", (Paragraph(_reading(study), "note"),)))
    return Document(
        title=f"kltune validate: {found.name}",
        subtitle=found.setting or "There is no setting to judge.",
        headline=found.headline(),
        is_answer=found.grade is Grade.PASS,
        sections=tuple(sections),
    )


def _blocks(found: Validation, grade: Grade) -> tuple[Block, ...]:
    lines = found.of_grade(grade)
    rows = [
        (f"{_MARKS[grade]} {line.title}", line.shown, line.threshold, line.meaning, line.action)
        for line in lines
    ]
    width = len(_HEADER) if any(line.action for line in lines) else len(_HEADER) - 1
    return (Grid(_HEADER[:width], tuple(row[:width] for row in rows)),)


def _reading(study: str) -> str:
    return (
        "A fail means: don't scale this setting up as it is (exit code 4). A warning: go on, knowing it. Numbers are "
        "of the recommended trial up to its stop, on the select prompts, unless a line says otherwise; the thresholds "
        "and their reasons are in kltune/validate/thresholds.py. Of the test prompts only what kltune confirm wrote is "
        f"read; nothing new is looked at. Repeat: kltune validate {study}"
    )
