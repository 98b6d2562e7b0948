"""A study folder in; out: whether a kltune is at work in it, seen without touching its lock.

Trying the lock would hold it for a moment, and a sweep that starts in that moment would be refused. Linux
says of every process which files it has open and which of them are locked (proc_pid_fdinfo(5)).
"""

from __future__ import annotations

import itertools
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kltune.study.place import LOCK

PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who works in a study."""

    state: Literal["held", "free", "unknown"]
    """unknown: the process is there, but not ours to look into."""
    pid: int | None = None
    command: str = ""
    """As ``kltune sweep``; empty where it can't be told."""
    since: float | None = None
    """Unix seconds at which it took the study."""


def find_holder(study_path: Path, proc: Path = PROC) -> Holder:
    """Look who holds the study; nothing is opened for writing, locked or made."""
    lock = study_path / LOCK
    try:
        text = lock.read_text(encoding="utf-8", errors="replace").strip()
        since = lock.stat().st_mtime
    except OSError:
        return Holder("free")
    if not text.isdecimal():
        return Holder("free")
    pid = int(text)
    process = proc / text
    if not process.is_dir():
        return Holder("unknown" if not proc.is_dir() and _lives(pid) else "free", pid)
    try:
        is_held = any(_is_locked(process, entry.name, lock) for entry in (process / "fd").iterdir())
    except PermissionError:
        is_held = None
    except OSError:  # it ended meanwhile
        is_held = False
    if is_held is False:
        return Holder("free", pid)
    return Holder("unknown" if is_held is None else "held", pid, _command(process), since)


def _is_locked(process: Path, descriptor: str, lock: Path) -> bool:
    """Whether this descriptor is the lock file with a lock on it."""
    try:
        if not (process / "fd" / descriptor).samefile(lock):
            return False
        facts = (process / "fdinfo" / descriptor).read_text(encoding="utf-8")
    except PermissionError:
        raise
    except OSError:  # closed meanwhile, or no file at all
        return False
    return any(line.startswith("lock:") for line in facts.splitlines())


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _command(process: Path) -> str:
    """Its subcommand: the word after kltune."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    for word, after in itertools.pairwise(words):
        if Path(word).name in ("kltune", "__main__.py") and after.isalpha():
            return shlex.join(("kltune", after))
    return ""
