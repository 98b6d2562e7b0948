"""A replay in, what a person reads in the terminal out."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.replay.compare import Compared, Likeness
from kltune.replay.result import MOST_DIFFERENCES, ReplayResult
from kltune.trial.words import number

_STYLES = {
    Likeness.SAME: "green",
    Likeness.ROUNDING: "yellow",
    Likeness.DIFFERENT: "red",
    Likeness.NOTHING: "yellow",
}


def replay_table(found: ReplayResult) -> Group:
    """The verdict first, then where the two part, what differs around them, and the trace."""
    return Group(*_parts(found))


def _parts(found: ReplayResult) -> Iterator[RenderableType]:
    likeness = found.comparison.likeness
    yield Text(
        f"trial {found.trial} of {found.study}: {found.verdict()}",
        style=f"bold {_STYLES[likeness]}",
    )
    yield Text(found.setting)
    yield _facts(found)
    first = found.comparison.first
    if first is not None:
        yield Text("")
        yield _differences(first)
        yield from _surroundings(found)
    for note in found.notes:
        yield Text(f"note: {note}")


def _facts(found: ReplayResult) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    steps = f"{found.steps_run} run, {found.steps_recorded} in the record"
    if found.steps_run != found.steps_asked:
        steps = f"{found.steps_run} run of {found.steps_asked} asked, {found.steps_recorded} in the record"
    table.add_row("steps", steps)
    table.add_row("ended", found.detail)
    if found.recorded_end:
        table.add_row("record ended", found.recorded_end)
    if extent := found.extent():
        table.add_row("in all", extent)
    if consequence := found.consequence():
        table.add_row("in the end", consequence)
    if found.traced is not None:
        traced = found.traced
        table.add_row(f"trace, step {traced.step}", traced.line)
        agree = f"all {traced.sums} sums agree with what was logged, within rounding"
        if traced.wrong:
            agree = (
                f"{len(traced.wrong)} of {traced.sums} sums do NOT agree: {', '.join(traced.wrong)}"
            )
        table.add_row("", agree)
    return table


def _differences(first: Compared) -> Table:
    shown = first.differences[:MOST_DIFFERENCES]
    title = (
        f"{first.place()}: {len(first.differences)} of {first.num_same + len(first.differences)} "
        f"quantities differ{', the largest' if len(first.differences) > len(shown) else ''}"
    )
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
    )
    table.add_column("quantity")
    for name in ("record", "now", "difference, as a share"):
        table.add_column(name, justify="right")
    for one in shown:
        table.add_row(
            one.name, number(one.recorded, 9), number(one.replayed, 9), number(one.share, 2)
        )
    return table


def _surroundings(found: ReplayResult) -> Iterator[Text]:
    if not found.surroundings:
        yield Text("Nothing that is recorded of machine, versions or threads differs.")
        return
    yield Text("What is not as it was:", style="bold")
    yield from (Text(f"- {line}") for line in found.surroundings)
