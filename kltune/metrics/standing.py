"""Endings of trials in, how the study stands out: one point for each trial that ended, in their order.

Counted from the record, so it is the same whichever process counts, and goes on over a resume.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from kltune.metrics.payload import Point

_ENDED = ("complete", "pruned", "failed")
"""An interrupted trial goes on later."""


@dataclass(slots=True)
class Standing:
    """What was sent, and what is to be sent next."""

    sent: list[int] = field(default_factory=list[int])
    """Numbers of trials, in the order in which their ends were sent."""
    best: float | None = None
    """Best value among them of a feasible trial."""
    fresh: dict[int, Mapping[str, Any]] = field(default_factory=dict[int, Mapping[str, Any]])
    """Endings that were not sent, by trial number."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Self:
        """Go on from what `kept` gave."""
        return cls(list(kept.get("sent", [])), kept.get("best"))

    def kept(self) -> dict[str, Any]:
        """What to write down once `points` were sent."""
        return {"sent": self.sent, "best": self.best}

    def note(self, trial_number: int, ending: Mapping[str, Any] | None) -> None:
        """Take in how a trial stands."""
        if ending is not None and ending["state"] in _ENDED and trial_number not in self.sent:
            self.fresh[trial_number] = ending
        else:
            self.fresh.pop(trial_number, None)

    def points(self) -> list[Point]:
        """One more ended trial a step, with the best value so far; the first to end comes first."""
        found: list[Point] = []
        best = self.best
        for step, (_, ending) in enumerate(self._in_order(), start=len(self.sent) + 1):
            at_ms = int(ending["time"] * 1000)
            found.append(Point("study/trials_ended", float(step), at_ms, step))
            best = _better(best, ending)
            if best is not None:
                found.append(Point("study/best_value", best, at_ms, step))
        return found

    def settle(self) -> None:
        """Take `points` as sent."""
        for number, ending in self._in_order():
            self.best = _better(self.best, ending)
            self.sent.append(number)
        self.fresh.clear()

    def _in_order(self) -> list[tuple[int, Mapping[str, Any]]]:
        return sorted(self.fresh.items(), key=lambda item: (item[1]["time"], item[0]))


def _better(best: float | None, ending: Mapping[str, Any]) -> float | None:
    value = ending.get("value")
    if not ending.get("feasible") or not isinstance(value, int | float) or not math.isfinite(value):
        return best
    return float(value) if best is None else max(best, float(value))
