"""A study's folder in, the trials with news out: seen by the files' sizes and times, without reading them.

Other processes train trials of the same study; what they write is looked for from time to time.
"""

from __future__ import annotations

import os
from pathlib import Path

from kltune.metrics.rows import CONFIG, EVALS, EVENTS

_Sign = tuple[tuple[int, int], ...]
_WATCHED = (CONFIG, EVENTS, EVALS)
"""Not the steps: they travel with the next evaluation, in one request."""
_WATCHED_WHEN_OVER = (CONFIG, EVENTS)
"""A trial that goes on gets a new config.json."""


class News:
    """What was seen of each trial's folder."""

    def __init__(self, study_path: Path) -> None:
        self._trials = study_path / "trials"
        self._seen: dict[Path, _Sign] = {}
        self._over: set[Path] = set()

    def note(self, folder: Path) -> None:
        """Take a trial's folder as seen in its state of now; call it before reading the files."""
        self._over.discard(folder)
        self._seen[folder] = _sign(folder, _WATCHED)

    def note_over(self, folder: Path) -> None:
        """Look less closely at a trial that has ended."""
        if folder in self._seen:
            self._over.add(folder)
            self._seen[folder] = self._seen[folder][: len(_WATCHED_WHEN_OVER)]

    def look(self) -> list[Path]:
        """List the folders that are new or changed, by trial number; each is news until it is noted."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._trials) if entry.is_dir())
        except OSError:  # none yet, or the file system is away
            return []
        return [folder for name in names if self._is_news(folder := self._trials / name)]

    def going_on(self) -> list[Path]:
        """List the folders that were noted and have not ended."""
        return [folder for folder in self._seen if folder not in self._over]

    def _is_news(self, folder: Path) -> bool:
        watched = _WATCHED_WHEN_OVER if folder in self._over else _WATCHED
        sign = _sign(folder, watched)
        # Without a config.json there is no trial yet.
        return sign[0] != (0, 0) and sign != self._seen.get(folder)


def _sign(folder: Path, names: tuple[str, ...]) -> _Sign:
    return tuple(_size_and_time(folder / name) for name in names)


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_size, found.st_mtime_ns
