"""A study folder in, the processes that work on it out: each member keeps a locked file in ``workers/``.

The lock is the proof of life: it is free the moment its process is gone, and a process that took over the
number of a dead one does not hold it. It is proof on one machine. Of another machine a held lock says that
the member lives, a free one says nothing (a shared file system may not pass locks on): leases decide there
(kltune.study.lease). Nothing here compares clocks of two machines.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from kltune.errors import StudyError
from kltune.study.machine import lives, this_machine

FOLDER: Final = "workers"
"""In the study folder: one file for each member that works now, and for each that died."""

Role = Literal["sweep", "worker"]
_TRIES: Final = 5
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Member:
    """One process of kltune on a study."""

    id: str
    """Short and unique; says nothing about where it runs."""
    machine: str
    """As `kltune.study.machine.this_machine`."""
    pid: int
    started: float
    """Unix seconds, by its own clock."""
    role: Role
    slots: int | None = None
    """Trials that it trains at once; None until its bank is ready."""
    device: str | None = None
    """``cpu`` or ``cuda``; None until its bank is ready."""
    is_alive: bool | None = None
    """None: it is on another machine, and its lock does not tell."""
    seen: float = 0.0
    """Unix seconds of its latest sign in its file, by the clock of the file system."""

    @property
    def is_here(self) -> bool:
        """Whether its process number means something on this machine."""
        return self.machine == this_machine()


class Membership:
    """A member's own end of its file."""

    def __init__(self, member: Member, descriptor: int) -> None:
        """``descriptor``: of the member's file, locked."""
        self._member = member
        self._descriptor = descriptor

    @property
    def member(self) -> Member:
        """As it stands in the file now."""
        return self._member

    def place(self, slots: int, device: str) -> None:
        """Note what it trains with, once that is known."""
        self._member = replace(self._member, slots=slots, device=device)
        self.write()

    def touch(self) -> None:
        """Give a sign of life that other machines can see: the file's time."""
        with contextlib.suppress(OSError):
            os.utime(self._descriptor)

    def write(self) -> None:
        """Put the member into its file, in one piece and never shorter in between."""
        facts: dict[str, Any] = {
            "schema": 1,
            "id": self._member.id,
            "machine": self._member.machine,
            "pid": self._member.pid,
            "started": self._member.started,
            "role": self._member.role,
            "slots": self._member.slots,
            "device": self._member.device,
        }
        text = f"{json.dumps(facts)}\n".encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))


@contextmanager
def join(
    study_path: Path, role: Role, slots: int | None = None, device: str | None = None
) -> Generator[Membership]:
    """Be a member of the study inside the block; hold the study's lock (shared) around it.

    The file goes when the block ends, by an error too; it stays where the process is killed, and says so
    to whoever looks. Whoever joins where surely nobody lives clears the dead away.

    Raises:
        StudyError: the folder can't be written, or its file system knows no locks.
    """
    folder = study_path / FOLDER
    clear_dead(study_path)
    member = Member(_new_id(), this_machine(), os.getpid(), time.time(), role, slots, device, True)
    path = folder / f"{member.id}{_SUFFIX}"
    descriptor = _made(path)
    try:
        try:
            # Before anything is in it: a file that can be read is a file that is locked, or whose member died.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            membership = Membership(member, descriptor)
            membership.write()
        except OSError as error:
            raise StudyError(f"{path}: can't be locked on this file system ({error})") from error
        yield membership
    finally:
        if os.getpid() == member.pid:  # a child that was forked inside leaves nothing
            with contextlib.suppress(OSError):
                path.unlink()
            with contextlib.suppress(OSError):
                folder.rmdir()  # only if empty
        os.close(descriptor)


def members(study_path: Path) -> list[Member]:
    """Every member that works on the study or died at it, the first to join first. Writes nothing."""
    found = [_read(path) for path in _files(study_path)]
    return sorted(
        (member for member in found if member is not None),
        key=lambda member: (member.started, member.id),
    )


def others(study_path: Path, own_id: str | None = None) -> list[Member]:
    """Members that are not surely dead, without the one of this id."""
    return [m for m in members(study_path) if m.id != own_id and m.is_alive is not False]


def is_member_alive(study_path: Path, member_id: str, machine: str) -> bool | None:
    """Whether the member of a lease still lives; None where this machine can't tell.

    A member whose file is gone has left the study: on this machine that is proof.
    """
    member = _read(study_path / FOLDER / f"{member_id}{_SUFFIX}")
    if member is not None:
        return member.is_alive
    return False if machine == this_machine() else None


def clear_dead(study_path: Path, own_id: str | None = None) -> None:
    """Remove the files of members that surely died, where no other than ``own_id`` may be at work."""
    if others(study_path, own_id):
        return
    for path in _files(study_path):
        member = _read(path)
        if member is not None and member.is_alive is False:
            with contextlib.suppress(OSError):
                path.unlink()


def _made(path: Path) -> int:
    for left in reversed(range(_TRIES)):
        try:
            path.parent.mkdir(exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileNotFoundError as error:
            if left and path.parent.parent.is_dir():
                continue  # another one left, and took the empty folder with it
            raise StudyError(f"{path.parent.parent}: no such study folder ({error})") from error
        except OSError as error:
            raise StudyError(
                f"{path.parent}: can't note that this process works here ({error})"
            ) from error
    raise AssertionError("unreachable")


def _new_id() -> str:
    return secrets.token_hex(4)


def _files(study_path: Path) -> list[Path]:
    folder = study_path / FOLDER
    try:
        return [path for path in folder.iterdir() if path.suffix == _SUFFIX]
    except OSError:
        return []


def _read(path: Path) -> Member | None:
    """A member by its file; None where there is none, or one that is not written yet."""
    for _ in range(_TRIES):
        try:
            with path.open(encoding="utf-8") as file:
                seen = os.fstat(file.fileno()).st_mtime
                facts = json.loads(file.read())
                is_held = _is_held(file.fileno())
            return _member(facts, is_held, seen)
        except OSError:
            return None
        except (ValueError, KeyError, TypeError):
            time.sleep(0.01)  # it is being written
    return None


def _member(facts: dict[str, Any], is_held: bool | None, seen: float) -> Member:
    member = Member(
        id=str(facts["id"]),
        machine=str(facts["machine"]),
        pid=int(facts["pid"]),
        started=float(facts["started"]),
        role="sweep" if facts["role"] == "sweep" else "worker",
        slots=facts.get("slots"),
        device=facts.get("device"),
        seen=seen,
    )
    if not member.is_here:
        return replace(member, is_alive=True if is_held else None)
    # A child that a reward function forked may hold the lock of a parent that is gone.
    return replace(member, is_alive=is_held is not False and lives(member.pid))


def _is_held(descriptor: int) -> bool | None:
    """Whether someone holds the file's lock; None where the file system can't say.

    A shared lock for a moment is all it takes, and its owner has the lock since before the file could be read.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
