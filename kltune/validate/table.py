"""A validation in, what a person reads in the terminal out."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.grade import GRADE_STYLES, Grade
from kltune.validate.result import Validation


def validation_table(found: Validation) -> Group:
    """The whole go / no-go as a person reads it, the worst first."""
    parts: list[RenderableType] = [
        Text(f"{found.name}: {found.headline()}", style=f"bold {GRADE_STYLES[found.grade]}"),
    ]
    if found.setting:
        parts.append(Text(found.setting))
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("check", overflow="fold", ratio=3)
    table.add_column("what it says", overflow="fold", ratio=8)
    for grade in (Grade.FAIL, Grade.WARN, Grade.PASS):
        for line in found.of_grade(grade):
            text = Text(f"{line.shown}  ", style="bold")
            text.append(line.meaning, style="not bold")
            if line.action:
                text.append(f" {line.action}", style="not bold cyan")
            table.add_row(Text(grade.value, style=GRADE_STYLES[grade]), line.title, text)
    parts += [Text(""), table, Text("\nNot tested", style="bold")]
    parts += [Text(f"- {text}") for text in found.untested]
    return Group(*parts)
