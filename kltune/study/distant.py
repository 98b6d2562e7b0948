"""A study whose trials are in a file in its folder in; a refusal out where another machine is at work in it.

Members on one file share its write-ahead log by shared memory, which reaches no further than one machine
(sqlite.org/wal.html): on a network file system they would damage it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kltune.errors import StudyError
from kltune.study.crew import FOLDER, members
from kltune.study.machine import is_same_system
from kltune.study.place import DATABASE
from kltune.study.stale import SILENT, lease_seconds


def refuse_distant(study_path: Path, environ: Mapping[str, str]) -> None:
    """Raise `StudyError` where a member on another machine lives: it holds its lock, or gave a sign lately.

    One that gave none for long has died, and does not keep its study from going on elsewhere.
    """
    distant = [m for m in members(study_path) if not is_same_system(m.machine)]
    if not distant:
        return
    since = _now(study_path / FOLDER) - SILENT * lease_seconds(environ)
    if any(member.is_alive or member.seen > since for member in distant):
        raise StudyError(
            f"{study_path}: another machine is at work in this study, whose {DATABASE} is safe for "
            "processes of one machine alone; for several, begin it on a database server "
            "(--storage postgresql://user@host/database, with --fresh), or work on that machine"
        )


def _now(folder: Path) -> float:
    """The time by the clock of the file system, by which members' signs are dated; no machine's own is compared."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return float("inf")  # nothing can be written here, so nothing will be
