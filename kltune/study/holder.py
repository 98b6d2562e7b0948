"""A study folder in; out: whether a kltune is at work in it, seen without touching its lock.

Trying the lock would hold it for a moment, and a sweep that starts in that moment would be refused. Linux
says of every process which files it has open and which of them are locked (proc_pid_fdinfo(5)).
"""

from __future__ import annotations

import itertools
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kltune.masking import redact
from kltune.study.crew import Member, members
from kltune.study.machine import PROC, lives, this_machine
from kltune.study.place import LOCK


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
    crew: tuple[Member, ...] = ()
    """Members of the search that is under way: those that live, those that died, and those nobody here can tell of."""

    @property
    def lead(self) -> Member | None:
        """The sweep among them, if it lives."""
        return next((m for m in self.crew if m.role == "sweep" and m.is_alive), None)

    @property
    def workers(self) -> tuple[Member, ...]:
        """The workers among them that live."""
        return tuple(m for m in self.crew if m.role == "worker" and m.is_alive)

    @property
    def dead(self) -> tuple[Member, ...]:
        """Members whose process is gone without a word."""
        return tuple(m for m in self.crew if m.is_alive is False)

    @property
    def distant(self) -> tuple[Member, ...]:
        """Members on other machines of which only leases can tell whether they live."""
        return tuple(m for m in self.crew if m.is_alive is None)


def find_holder(study_path: Path, proc: Path = PROC) -> Holder:
    """Look who works in the study; its lock is not touched, nothing is opened for writing or made."""
    found = _of_lock(study_path, proc)
    crew = tuple(members(study_path))
    if not crew:
        return found
    found = replace(found, crew=crew)
    if found.state == "held":
        return found
    working = [found.lead] if found.lead is not None else list(found.workers)
    if working:
        first, since = working[0], min(member.started for member in crew)
        return replace(
            found,
            state="held",
            pid=first.pid,
            command=f"kltune {first.role}",
            since=since,
            is_gone=False,
        )
    if found.distant:
        return replace(found, state="unknown", is_gone=False)
    return replace(found, pid=found.dead[0].pid, is_gone=True)


def _of_lock(study_path: Path, proc: Path) -> Holder:
    """Who wrote the lock file and holds it."""
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
        if not proc.is_dir() and lives(pid):
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


def is_at_work(study_path: Path) -> bool | None:
    """Whether another process surely works in the study; None where that can't be seen.

    The caller's own hold does not count: a sweep that writes its report has ended its trials.
    """
    holder = find_holder(study_path)
    if any(not (m.is_here and m.pid == os.getpid()) for m in holder.crew if m.is_alive):
        return True
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


def _command(process: Path) -> str:
    """Its subcommand: the word after kltune."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    for word, after in itertools.pairwise(words):
        if Path(word).name in ("kltune", "__main__.py") and after.isalpha():
            return redact(shlex.join(("kltune", after)))
    return ""
