"""What the mirror has still to send: types only, and when it may try again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kltune.metrics.payload import Point

_HOPE_S: Final = 5.0
"""At the end, how long a tracker that fails at once is tried again."""


@dataclass(frozen=True, slots=True)
class Closing:
    """How a process leaves its study."""

    status: str
    """Of the parent run: FINISHED, KILLED or FAILED."""
    artifacts: tuple[Path, ...]
    """Files for the parent run."""
    is_last: bool
    """Whether nobody else works on the study."""
    until: float
    """When the process stops waiting, by the monotonic clock."""
    at: float
    """When it was asked for, by the monotonic clock."""
    was_out: bool
    """Whether the tracker was already away: then one more attempt is enough."""

    def may_try_again(self, *, has_hope: bool) -> bool:
        """Whether there is time, and hope, for another attempt.

        ``has_hope``: whether the tracker answers, though it lost what was sent.
        """
        now = time.monotonic()
        if has_hope:
            return now < self.until
        return not self.was_out and now < min(self.until, self.at + _HOPE_S)


@dataclass(slots=True)
class Todo:
    """The list itself; guarded by the mirror's condition."""

    folders: dict[Path, None] = field(default_factory=dict[Path, None])
    """Of trials with news, in the order in which they came."""
    points: list[Point] = field(default_factory=list[Point])
    """Of the study."""
    closing: Closing | None = None

    def has_work(self) -> bool:
        """Whether there is anything on it."""
        return bool(self.folders or self.points or self.closing is not None)
