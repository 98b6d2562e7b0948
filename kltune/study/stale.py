"""Signs of life in, those that stay away out: by this process's own clock alone.

No time stamp of another process is compared with anything, so a clock that jumps, here or elsewhere,
changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kltune.errors import KltuneError


@dataclass(slots=True)
class _Seen:
    sign: object
    unchanged_s: float = 0.0


LEASE_S: Final = 60.0
"""Seconds for which a sign of life holds; it is renewed after half of that."""
VARIABLE: Final = "KLTUNE_LEASE"
"""Environment variable with other seconds: all members of a study should have the same."""
SILENT: Final = 2.0
"""Leases without a new sign after which a member is taken for dead."""


def lease_seconds(environ: Mapping[str, str]) -> float:
    """The length of a lease: `LEASE_S`, or what the environment says.

    Raises:
        KltuneError: it is no number of seconds above 0.
    """
    given = environ.get(VARIABLE, "")
    if not given:
        return LEASE_S
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise KltuneError(f"{VARIABLE}={given}: not a number of seconds above 0")
    return seconds


class Watch:
    """Sees signs of life and says which have not changed for too long, each within its own patience."""

    def __init__(self, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``most_s``: seconds that one look may add, however long ago the one before was.

        A process that was stopped itself, perhaps with all others of its machine, has watched nothing in
        between.
        """
        self._most_s = most_s
        self._clock = clock
        self._looked_at = clock()
        self._seen: dict[object, _Seen] = {}
        self._lock = threading.Lock()

    def look(self, signs: Mapping[object, object]) -> None:
        """Take in the sign of each that should be alive; whoever is not named is forgotten."""
        with self._lock:
            now = self._clock()
            since = min(max(0.0, now - self._looked_at), self._most_s)
            self._looked_at = now
            for key in self._seen.keys() - signs.keys():
                del self._seen[key]
            for key, sign in signs.items():
                seen = self._seen.get(key)
                if seen is None or seen.sign != sign:
                    self._seen[key] = _Seen(sign)
                else:
                    seen.unchanged_s += since

    def unchanged_s(self, key: object, sign: object) -> float:
        """Seconds for which ``key`` was watched with this very sign; 0 where it was not."""
        with self._lock:
            seen = self._seen.get(key)
            return seen.unchanged_s if seen is not None and seen.sign == sign else 0.0
