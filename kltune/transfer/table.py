"""A comparison over sizes in, what a person reads in the terminal out: every number with its unit."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.statistics.drift import Interval
from kltune.transfer.compare import size_words
from kltune.transfer.result import Kind, TransferResult
from kltune.trial.words import MISSING, number

STYLES = {Kind.TRANSFERS: "green", Kind.SHIFTS: "yellow", Kind.UNKNOWN: "dim"}
_NAME_WIDTH = 20
"""What is compared stays readable whatever the other columns take."""

_READING = (
    "Brackets: interval of 95 % or more; .. : no end on that side. Factor: largest model over smallest, along a straight "
    "line through all sizes."
)


def transfer_table(result: TransferResult) -> Group:
    """The whole comparison as a person reads it."""
    parts: list[RenderableType] = [
        _studies(result),
        Text("\nDoes the ranking of settings hold?", style="bold"),
        _settings_line(result),
    ]
    parts += [Text(f"  {r.words}", style=STYLES[r.kind]) for r in result.rankings]
    parts += [Text("\nWhat moves with size", style="bold"), _quantities(result)]
    parts += [Text(_READING, style="dim"), Text("")]
    parts += [Text(f"  {q.words}", style=STYLES[q.kind]) for q in result.quantities]
    parts += [Text(f"note: {note}.", style="yellow") for note in result.notes]
    return Group(*parts)


def _studies(result: TransferResult) -> Table:
    table = _plain()
    table.add_column("study", no_wrap=True)
    table.add_column("model", overflow="fold", ratio=1)
    for name in ("parameters", "learning rate", "trials judged"):
        table.add_column(name, justify="right", no_wrap=True)
    for s in result.studies:
        table.add_row(
            s.study,
            s.base,
            size_words(s.parameters),
            f"{s.learning_rate:g}",
            f"{s.judged} of {s.budget}",
        )
    return table


def _settings_line(result: TransferResult) -> Text:
    count = len(result.matched)
    return Text(
        f"{count} settings were judged in every study; {result.unmatched} others were not and are left out "
        "of all that compares the same settings."
    )


def _quantities(result: TransferResult) -> Table:
    table = _plain()
    table.add_column("", min_width=_NAME_WIDTH, ratio=1)
    for s in result.studies:
        table.add_column(size_words(s.parameters), justify="right", no_wrap=True)
    table.add_column("factor", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for q in result.quantities:
        table.add_row(
            Text(q.name).append(f"\n{q.unit}", style="dim"),
            *(short(interval, "\n") for interval in q.by_study),
            short(q.factor, "\n"),
            Text(q.kind.value, style=STYLES[q.kind]),
        )
    return table


def short(interval: Interval, joint: str = " ") -> str:
    """``3.1 [2.1, 4.6]``; a dash where nothing is known."""
    if interval.value is None and interval.low is None and interval.high is None:
        return MISSING
    value = number(interval.value, 2)
    if interval.low is None and interval.high is None:
        return value
    low = ".." if interval.low is None else number(interval.low, 2)
    high = ".." if interval.high is None else number(interval.high, 2)
    return f"{value}{joint}[{low}, {high}]"


def _plain() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
