"""A check in, what a person reads in the terminal out."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.check.result import CheckResult
from kltune.grade import GRADE_STYLES, Grade
from kltune.report.text import visible
from kltune.trial.words import duration

_HEADLINES = {
    Grade.PASS: "sound: nothing was found",
    Grade.WARN: "nothing is broken, but look at the warnings",
    Grade.FAIL: "not sound: numbers of a run would be wrong or mean nothing",
}


def check_table(found: CheckResult) -> Group:
    """The whole check as a person reads it, the worst first."""
    grade = found.grade
    parts: list[RenderableType] = [
        Text(f"{visible(found.name)}: {_HEADLINES[grade]}", style=f"bold {GRADE_STYLES[grade]}"),
        Text(f"{_counts(found)}; {duration(found.seconds)}", style="dim"),
        Text(""),
        _rows(found),
    ]
    if found.skipped:
        parts.append(Text("\nNot looked at", style="bold"))
        parts += [Text(f"- {visible(text)}") for text in found.skipped]
    return Group(*parts)


def _rows(found: CheckResult) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("name", no_wrap=True)
    table.add_column("what must hold", overflow="fold", ratio=3)
    table.add_column("what was found", overflow="fold", ratio=6)
    for grade in (Grade.FAIL, Grade.WARN, Grade.PASS):
        for line in found.lines:
            if line.grade is not grade:
                continue
            text = Text(visible(line.shown))
            if line.remedy:
                text.append(f" {visible(line.remedy)}", style="cyan")
            table.add_row(
                Text(grade.value, style=GRADE_STYLES[grade]),
                line.name,
                Text(visible(line.title)),
                text,
            )
    return table


def _counts(found: CheckResult) -> str:
    grades = [line.grade for line in found.lines]
    said = {Grade.FAIL: "failed", Grade.WARN: "warned", Grade.PASS: "passed"}
    return ", ".join(f"{grades.count(grade)} {word}" for grade, word in said.items())
