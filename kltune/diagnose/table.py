"""A diagnosis or a comparison in, what a person reads in the terminal out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.diagnose.compare import Comparison
from kltune.diagnose.result import Diagnosis, Finding
from kltune.diagnose.rule import QUANTITY_WORDS
from kltune.diagnose.runlog import Reading
from kltune.diagnose.series import counted, shown, steps_text
from kltune.grade import GRADE_STYLES, Grade
from kltune.report.text import visible

_MAX_CAUSES = 3
_FULL_LINES = 8
"""Runs up to which a table shows the whole evidence; of more each has one line."""


def diagnosis_table(found: Diagnosis) -> Group:
    """One run: what is wrong, the evidence, likely causes in order, what to do first, and how it was read."""
    parts: list[RenderableType] = [
        _plain(f"{found.path}: {found.condition}", f"bold {GRADE_STYLES[found.grade]}"),
        _plain(_source(found)),
    ]
    if found.restart:
        parts.append(_plain(found.restart, GRADE_STYLES[Grade.WARN]))
    for finding in found.findings:
        parts += [Text(""), *_finding(finding)]
    if found.passed:
        text = Text("\nNothing found against: ", style="green")
        parts.append(text.append(visible("; ".join(found.passed)), style="not bold default"))
    parts += _listed("Can't be told from this log", _by_lack(found.untold))
    parts += _readings(found.readings)
    parts += _listed("Notes", found.notes)
    return Group(*parts)


def runs_table(found: Sequence[Diagnosis]) -> Table:
    """Several runs, the worst first: a line each where they are many, else with the whole evidence."""
    is_long = len(found) > _FULL_LINES
    overflow = "ellipsis" if is_long else "fold"
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    table.add_column("", no_wrap=True)
    for head, ratio in (("run", 3), ("condition", 4), ("evidence", 8)):
        table.add_column(head, overflow=overflow, no_wrap=is_long, ratio=ratio)
    shared = _shared([one.path for one in found])
    for grade in (Grade.FAIL, Grade.WARN, Grade.PASS):
        for one in (one for one in found if one.grade is grade):
            evidence = one.findings[0].sign.detail if grade is not Grade.PASS else ""
            evidence = "; ".join(part for part in (one.restart, evidence) if part)
            cells = (one.path[shared:], one.condition, evidence)
            mark = Text(grade.value, style=GRADE_STYLES[grade])
            table.add_row(mark, *(_cell(cell) for cell in cells))
    return table


def comparison_table(found: Comparison) -> Group:
    """Two runs: where they part first, each quantity, and what was set differently."""
    parts: list[RenderableType] = [
        _plain(found.headline(), "bold"),
        _plain(f"A: {found.a}"),
        _plain(f"B: {found.b}"),
        Text(""),
    ]
    if found.partings:
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
        heads = (
            "quantity",
            "parts at step",
            "A there",
            "B there",
            "noise",
            "A at the end",
            "B at the end",
        )
        for head in heads:
            table.add_column(
                head, justify="left" if head == "quantity" else "right", overflow="fold"
            )
        for one in found.partings:
            unit = f", {one.unit}" if one.unit else ""
            numbers = (one.a, one.b, one.noise, one.end_a, one.end_b)
            step = "-" if one.step is None else str(one.step)
            cells = (QUANTITY_WORDS[one.quantity] + unit, step, *map(shown, numbers))
            table.add_row(*map(_cell, cells))
        parts.append(table)
    differing = [f"{name}: A {a}, B {b}" for name, a, b in found.facts]
    parts += _listed("Set differently, as far as the logs tell", differing)
    parts += _listed("Not compared", found.left_out)
    return Group(*parts)


def _shared(paths: Sequence[str]) -> int:
    """Length of the folders that all paths begin with."""
    heads = [path.split("/")[:-1] for path in paths]
    same = takewhile(lambda names: len(set(names)) == 1, zip(*heads, strict=False))
    return sum(len(names[0]) + 1 for names in same)


def _source(found: Diagnosis) -> str:
    if found.steps is None:
        return f"{found.kind}, no step"
    return f"{found.kind}, {counted(found.num_steps, 'logged step')} ({steps_text(*found.steps)})"


def _finding(finding: Finding) -> list[RenderableType]:
    sign = finding.sign
    # What passes is told for what it leaves open.
    mark = "note" if sign.grade is Grade.PASS else sign.grade.value
    head = Text(f"{mark}  ", style=GRADE_STYLES[sign.grade])
    head.append(finding.title, style="bold")
    head.append(f"  [{finding.condition}]", style="dim")
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False, expand=True)
    table.add_column("", no_wrap=True, style="dim")
    table.add_column("", overflow="fold", ratio=1)
    table.add_row("evidence", _cell(sign.detail))
    lead = "by the numbers: " if sign.cause else ""
    for i, cause in enumerate(finding.causes[:_MAX_CAUSES]):
        text = f"{lead if i == 0 else ''}{cause.text}"
        table.add_row("causes" if i == 0 else "", _cell(f"{i + 1}. {text}"))
    table.add_row("do first", _cell(finding.first, "cyan"))
    return [head, table]


def _readings(readings: Sequence[Reading]) -> list[RenderableType]:
    if not readings:
        return []
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", expand=True)
    for head, ratio in (("read as", 3), ("from", 4), ("unit", 2), ("why", 6)):
        table.add_column(head, overflow="fold", ratio=ratio)
    for one in readings:
        unit = " ".join(part for part in (one.unit, one.estimator) if part not in ("", "1"))
        why = one.why if one.is_certain else f"not certain: {one.why}"
        style = "" if one.is_certain else "yellow"
        cells = (QUANTITY_WORDS[one.quantity], one.name, unit)
        table.add_row(*map(_cell, cells), _cell(why, style))
    return [Text("\nHow the log was read", style="bold"), table]


def _by_lack(untold: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each thing that the log lacks, with all that needs it."""
    titles: dict[str, list[str]] = {}
    for lacks, title in untold:
        titles.setdefault(lacks, []).append(title)
    return [f"no {lacks}: whether {', '.join(listed)}" for lacks, listed in titles.items()]


def _listed(title: str, lines: Sequence[str]) -> list[RenderableType]:
    if not lines:
        return []
    return [Text(f"\n{title}", style="bold"), *(_cell(f"- {line}") for line in lines)]


def _plain(text: str, style: str = "") -> Text:
    """A text from a log or a path, as it is: its brackets are no markup, its control characters do nothing."""
    return Text(visible(text), style=style)


def _cell(text: str, style: str = "") -> Text:
    """The same on one line."""
    return _plain(" ".join(text.split("\n")), style)
