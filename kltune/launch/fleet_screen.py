"""What workers of a cluster say, and where the study stands, in; a live table or plain lines on stderr out."""

from __future__ import annotations

import sys
from collections import deque
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kltune.launch.fleet import Fleet
from kltune.launch.status_facts import Standing, TrialStand
from kltune.report.text import visible
from kltune.screen.watch import takes_tables
from kltune.trial.outcome import TrialState
from kltune.trial.words import both_units, score

_RECENT: Final = 6
_SHOWN: Final = 24
"""Workers and trials in the table; of a larger fleet the rest is counted."""


class FleetScreen:
    """Lines as they come; on a terminal, below the latest of them, who works where and on what."""

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self._name = name
        self._stream = sys.stderr if stream is None else stream
        self._live: Live | None = None
        if takes_tables(self._stream):
            console = Console(file=self._stream)
            self._live = Live(console=console, auto_refresh=False, transient=False)
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._said: dict[int, str] = {}
        self._counted = ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, worker: int | None, text: str) -> None:
        """Something that a worker said, or that happened to one."""
        shown = visible(text if worker is None else f"worker {worker}: {text}")
        if worker is not None:
            self._said[worker] = visible(text)
        if self._live is None:
            self._stream.write(f"{shown}\n")
            self._stream.flush()
        else:
            self._recent.append(shown)

    def show(self, fleet: Fleet, standing: Standing | None) -> None:
        """Bring the table up to date; without a terminal, a line where a count has changed."""
        head = self._head(fleet, standing)
        if self._live is not None:
            self._live.update(self._table(head, fleet, standing), refresh=True)
        elif head != self._counted:
            self._counted = head
            self._stream.write(f"{head}\n")
            self._stream.flush()

    def _head(self, fleet: Fleet, standing: Standing | None) -> str:
        workers = f"{len(fleet.running)} worker{'s' * (len(fleet.running) != 1)}"
        nodes = len(set(fleet.running.values()))
        workers += f" on {nodes} node{'s' * (nodes != 1)}"
        if standing is None or standing.spec is None:
            return f"{visible(self._name)}: getting ready; {workers}"
        counts = standing.counts
        parts = [f"{counts[s]} {s.value}" for s in TrialState if counts[s]]
        return (
            f"{visible(self._name)}: {standing.num_counted} of {standing.spec.budget.trials} trials done "
            f"({', '.join(parts) or 'none begun'}); {workers}"
        )

    def _table(self, head: str, fleet: Fleet, standing: Standing | None) -> Group:
        workers = Table(box=None, padding=(0, 2, 0, 0), expand=True)
        for title in ("worker", "node"):
            workers.add_column(title, no_wrap=True, style="dim")
        workers.add_column("said last", overflow="ellipsis", no_wrap=True, ratio=1)
        for number, node in sorted(fleet.running.items())[:_SHOWN]:
            workers.add_row(str(number), node[:8], Text(self._said.get(number, "")))
        if len(fleet.running) > _SHOWN:
            workers.add_row("", "", f"and {len(fleet.running) - _SHOWN} more")
        parts = [Text(head, style="bold"), workers]
        if standing is not None and standing.open:
            parts.append(_trials(standing))
        return Group(*parts, *(Text(line, style="dim") for line in self._recent))


def _trials(standing: Standing) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("trial", "step", "gold", "KL", "setting"):
        table.add_column(title, no_wrap=True)
    for trial in standing.open[:_SHOWN]:
        table.add_row(*_row(trial))
    return table


def _row(trial: TrialStand) -> tuple[str, ...]:
    gold = trial.evaluation.get("eval/gold")
    kl = both_units(trial.row.get("kl/exact_token"), trial.row.get("kl/exact_seq"))
    shown = "" if gold is None else score(gold)
    return str(trial.number), str(trial.step), shown, kl if trial.row else "", trial.setting
