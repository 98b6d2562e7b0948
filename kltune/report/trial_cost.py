"""The record of a trial in, what it cost out: steps, seconds and operations, of work that was thrown away too.

Seconds of a step or evaluation are the trial's own share of the worker that ran it, so they
add up to the time that the workers were busy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kltune.metrics.rows import Row
from kltune.trial.record import TrialRecord

PHASES = ("rollout", "score", "logprobs", "reference", "update")
"""Parts of a step whose seconds are on record, none within another."""


@dataclass(frozen=True, slots=True)
class Work:
    """Some steps or evaluations, added up."""

    rows: int = 0
    seconds: float = 0.0
    """Of the rows that say."""
    gflop: float = 0.0
    """Useful operations / 1e9 of the rows that say."""
    untimed: int = 0
    """Rows that don't say how long they took."""
    uncounted: int = 0
    """Rows that don't say how many operations they took."""

    def __add__(self, other: Work) -> Work:
        """Both."""
        return Work(
            self.rows + other.rows,
            self.seconds + other.seconds,
            self.gflop + other.gflop,
            self.untimed + other.untimed,
            self.uncounted + other.uncounted,
        )

    @property
    def mean_s(self) -> float | None:
        """Seconds per row; none where no row says."""
        timed = self.rows - self.untimed
        return self.seconds / timed if timed else None


@dataclass(frozen=True, slots=True)
class TrialCost:
    """What one trial cost, all attempts together."""

    steps: Work
    """Those that count."""
    redone: Work
    """Steps that a later attempt ran again, or that led nowhere."""
    evaluations: Work
    """Of all attempts."""
    phases: Mapping[str, float] | None
    """Seconds of all steps by the names in `PHASES`; none where no step says."""


def trial_cost(record: TrialRecord) -> TrialCost:
    """Add up the rows of a trial."""
    every = [*record.steps, *record.overtaken_steps]
    phases = {name: _sum(every, f"time/{name}_s") for name in PHASES}
    return TrialCost(
        steps=_work(record.steps, "time/step_s", "compute/step_gflop"),
        redone=_work(record.overtaken_steps, "time/step_s", "compute/step_gflop"),
        evaluations=_work(
            [*record.evals, *record.overtaken_evals], "time/evaluate_s", "compute/evaluate_gflop"
        ),
        phases=phases if any(phases.values()) else None,
    )


def seconds_in_slot(rows: Iterable[Mapping[str, Any]]) -> float:
    """Wall time in a slot, summed over attempts: from each attempt's first to its last row."""
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for row in rows:
        time = row.get("time")
        if isinstance(time, int | float) and math.isfinite(time):
            attempt = int(row.get("attempt", 0))
            first[attempt] = min(time, first.get(attempt, math.inf))
            last[attempt] = max(time, last.get(attempt, -math.inf))
    return sum(last[a] - first[a] for a in first)


def _work(rows: Iterable[Row], seconds: str, gflop: str) -> Work:
    rows = list(rows)
    times, counts = _known(rows, seconds), _known(rows, gflop)
    num_rows = len(rows)
    return Work(num_rows, sum(times), sum(counts), num_rows - len(times), num_rows - len(counts))


def _sum(rows: Iterable[Row], name: str) -> float:
    return sum(_known(rows, name))


def _known(rows: Iterable[Row], name: str) -> list[float]:
    return [value for row in rows if isinstance(value := row.get(name), int | float)]
