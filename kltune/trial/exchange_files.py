"""A trial's folder in; out: which of its files are exchanged, and whether an address holds them as they are now."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kltune.errors import StudyError
from kltune.metrics.jsonl import read_json, write_json
from kltune.metrics.rows import CONFIG
from kltune.trial.bundle import Version

SENT: Final = "exchange.json"
"""In a trial's folder: the version at the address that it agrees with."""
KEPT: Final = "mlflow.json"
"""How far the tracker has read this copy; it stays when the rest is replaced."""


def names_of(folder: Path) -> list[str]:
    """What is sent of a trial's folder; half-written files are not, nor what belongs to this copy alone."""
    found = [path for path in folder.iterdir() if path.is_file()]
    for checkpoint in ("last", "best"):
        inside = folder / "checkpoints" / checkpoint
        found += [path for path in inside.iterdir() if path.is_file()] if inside.is_dir() else []
    names = [path.relative_to(folder).as_posix() for path in found]
    return [name for name in names if name not in (SENT, KEPT) and not name.startswith(".")]


def marks_of(folder: Path) -> dict[str, list[int]]:
    """By file what tells whether it changed: bytes, and where it does not just grow, when it was written."""
    marks: dict[str, list[int]] = {}
    for name in names_of(folder):
        found = (folder / name).stat()
        marks[name] = [found.st_size, 0 if name.endswith(".jsonl") else found.st_mtime_ns]
    return marks


def note_version(folder: Path, version: Version, marks: dict[str, list[int]]) -> None:
    """Note that the address holds the folder as ``marks`` say."""
    facts = {"attempt": version.attempt, "count": version.count, "marks": marks}
    write_json(folder / SENT, facts)


def is_sent(folder: Path) -> bool:
    """Whether the address holds the folder as it is now."""
    try:
        return read_json(folder / SENT)["marks"] == marks_of(folder)
    except (OSError, StudyError, KeyError):
        return False


def attempt_of(folder: Path) -> int:
    """The latest attempt that is here; 0 where there is none."""
    try:
        return int(read_json(folder / CONFIG)["attempt"])
    except (OSError, StudyError, KeyError, ValueError):
        return 0


def known_version(folder: Path) -> Version | None:
    """The version that was sent or brought last."""
    try:
        facts = read_json(folder / SENT)
        return Version(int(facts["attempt"]), int(facts["count"]))
    except (OSError, StudyError, KeyError, ValueError):
        return None
