"""A study folder in; out: whether a kltune is at work in it, seen without touching its lock.

Trying the lock would hold it for a moment, and a sweep that starts in that moment would be refused. Linux
says of every process which files it has open and which of them are locked (proc_pid_fdinfo(5)).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
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
    is_gone: bool = False
    """Whether ``pid`` surely was a process of this machine and works here no more."""


def find_holder(study_path: Path, proc: Path = PROC) -> Holder:
    """Look who holds the study; nothing is opened for writing, locked or made."""
    lock = study_path / LOCK
    try:
        words = lock.read_text(encoding="utf-8", errors="replace").split()
        since = lock.stat().st_mtime
    except OSError:
        return Holder("free")
    if not words or not words[0].isdecimal():
        return Holder("free")
    pid = int(words[0])
    process = proc / words[0]
    is_here = words[1:] == [this_machine()]  # earlier versions wrote the process alone
    if not process.is_dir():
        if not proc.is_dir() and _lives(pid):
            return Holder("unknown", pid)
        return Holder("free", pid, is_gone=is_here)
    try:
        is_held = any(_is_locked(process, entry.name, lock) for entry in (process / "fd").iterdir())
    except PermissionError:
        is_held = None
    except OSError:  # it ended meanwhile
        is_held = False
    if is_held is False:
        return Holder("free", pid, is_gone=is_here)
    return Holder("unknown" if is_held is None else "held", pid, _command(process), since)


def this_machine() -> str:
    """What tells apart where the number of a process means something: one boot, and one container of it."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{(PROC / 'self/ns/pid').readlink()}"
    except OSError:
        digest = hashlib.sha256(platform.node().encode(errors="replace")).hexdigest()
        return digest[:32]  # a system without /proc: its name, which nobody else need read


def is_at_work(study_path: Path) -> bool | None:
    """Whether another process surely works in the study; None where that can't be seen.

    The caller's own hold does not count: a sweep that writes its report has ended its trials.
    """
    holder = find_holder(study_path)
    if holder.state == "unknown":
        return None
    return holder.state == "held" and holder.pid != os.getpid()


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
