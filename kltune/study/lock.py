"""A study folder in, the right to write in it out: alone, or shared by the members of its search.

Whoever sets a study up, moves it or confirms its answer holds ``.lock`` exclusively. A search holds it
shared: the sweep, once it has set up, and every worker. A lock that becomes a shared one is free for a
moment, so whoever gets it exclusively looks for living members as well (kltune.study.crew).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shlex
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kltune.errors import StudyError
from kltune.study.crew import others
from kltune.study.holder import find_holder
from kltune.study.machine import this_machine
from kltune.study.place import LOCK, is_empty, is_foreign

_TRIES: Final = 100
"""Others that take the folder back while this process is about to lock it."""
FILES_LOCK: Final = ".files"
_POLL_S: Final = 0.2
"""Between two looks whether the study is free to join."""


@dataclass(slots=True)
class Hold:
    """A study's lock in the hands of this process."""

    study_path: Path
    _descriptor: int
    is_shared: bool = False
    """Whether others may hold it too."""

    def share(self) -> None:
        """From now on let others work in the study too; be a member before (`kltune.study.crew.join`)."""
        if not self.is_shared:
            # Whoever slips in here finds this member, and lets go: it takes no time.
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            self.is_shared = True

    def leave(self) -> bool:
        """End the work in the study; true, with the study held alone, where nobody else works in it.

        Of several that leave at once exactly the last is told so.
        """
        if not self.is_shared:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.is_shared = False
        return True


@contextmanager
def lock_study(study_path: Path) -> Generator[Hold]:
    """Hold the study exclusively; the folder is made if it is absent, and taken back if it stayed empty.

    The lock belongs to the process: it is free again whenever the process is gone. Raises
    `StudyError` where another kltune holds it (a sweep, its workers, a confirmation, ...), or where the
    path can't be a folder.
    """
    made = [path for path in (study_path, *study_path.parents) if not path.exists()]
    descriptor = _locked(study_path, fcntl.LOCK_EX)
    if descriptor is None:
        raise StudyError(_busy_words(study_path))
    with _held(study_path, descriptor, made) as hold:
        yield hold


@contextmanager
def enter_study(
    study_path: Path, is_set_up: Callable[[], bool], wait: Callable[[], bool]
) -> Generator[Hold | None]:
    """Hold a study that is set up shared, else exclusively, to set it up: whoever is first does that.

    Where another one holds it, ``wait`` is asked again and again; nothing is held where it says no.
    """
    made = [path for path in (study_path, *study_path.parents) if not path.exists()]
    while True:
        kind = fcntl.LOCK_SH if is_set_up() else fcntl.LOCK_EX
        descriptor = _locked(study_path, kind)
        if descriptor is None:
            if not wait():
                yield None
                return
            time.sleep(_POLL_S * random.uniform(0.5, 1.5))  # not in step with others
        elif is_set_up() is (kind == fcntl.LOCK_SH):
            break
        else:  # it was set up, or taken away, since the look
            os.close(descriptor)
    is_shared = kind == fcntl.LOCK_SH
    with _held(study_path, descriptor, made, is_shared=is_shared) as hold:
        yield hold


@contextmanager
def _held(
    study_path: Path, descriptor: int, made: Sequence[Path], *, is_shared: bool = False
) -> Generator[Hold]:
    hold = Hold(study_path, descriptor, is_shared)
    try:
        if not is_shared:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {this_machine()}\n".encode(), 0)
        yield hold
    finally:
        if not hold.is_shared:
            _take_back(study_path, made)
        os.close(descriptor)


def _locked(study_path: Path, kind: int) -> int | None:
    """The lock file's descriptor, locked: of the file that is at its path now, not of one that was removed.

    None where another kltune holds it, or is a member that lives.
    """
    lock = study_path / LOCK
    for _ in range(_TRIES):
        try:
            study_path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue  # another one has just taken the folder back
        except OSError as error:
            raise StudyError(f"{study_path}: can't be used as a study folder ({error})") from error
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise StudyError(
                f"{study_path}: its file system has no locks ({error}), so it can hold no study"
            ) from error
        if _is_at(descriptor, lock):
            if kind == fcntl.LOCK_EX and any(member.is_alive for member in others(study_path)):
                os.close(descriptor)
                return None
            return descriptor
        os.close(descriptor)
    raise StudyError(f"{study_path}: can't be used as a study folder (it is removed all the time)")


def _busy_words(study_path: Path) -> str:
    """Who is in the way, and what to do: one sentence."""
    holder = find_holder(study_path)
    searching = holder.lead is not None or bool(holder.workers)
    who = "" if holder.pid is None else f" (process {holder.pid})"
    if holder.workers:
        count = len(holder.workers)
        workers = f"{count} worker{'s' * (count > 1)}"
        who = f" ({workers})" if holder.lead is None else f" (process {holder.lead.pid}, {workers})"
    advice = "wait for it or stop it"
    if searching or holder.command in ("kltune sweep", "kltune worker"):
        advice += f", or work with it by `kltune worker {shlex.quote(str(study_path))}`"
    return f"another kltune is working in {study_path}{who}; {advice}"


def _is_at(descriptor: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except OSError:
        return False


def _take_back(study_path: Path, made: Sequence[Path]) -> None:
    """Remove a folder that this process made and nothing was put in."""
    if study_path not in made:
        return
    with contextlib.suppress(OSError):
        if [entry.name for entry in study_path.iterdir()] == [LOCK]:
            (study_path / LOCK).unlink()
            for folder in made:
                folder.rmdir()


def refuse_foreign(study_path: Path) -> None:
    """Raise `StudyError` where ``--fresh`` would move something that is no study."""
    if is_foreign(study_path):
        raise StudyError(f"{study_path}: is no study of kltune, so --fresh leaves it alone")


@dataclass(slots=True)
class Claim:
    """A study that a sweep holds alone, to set it up."""

    hold: Hold
    _make_room: Callable[[], tuple[Hold, Path | None]]

    def make_room(self) -> Path | None:
        """Move an old study aside where that was asked for, as `move_aside` does, and hold the new folder instead."""
        self.hold, old = self._make_room()
        return old


@contextmanager
def claim_study(study_path: Path, *, fresh: bool = False) -> Generator[Claim]:
    """`lock_study` for a sweep, from before it reads anything: whoever comes second is refused."""
    if fresh:
        refuse_foreign(study_path)
    with contextlib.ExitStack() as held:
        hold = held.enter_context(lock_study(study_path))

        def make_room() -> tuple[Hold, Path | None]:
            old = move_aside(study_path, is_held=True) if fresh else None
            if old is None:
                return hold, None
            held.close()
            return held.enter_context(lock_study(study_path)), old

        yield Claim(hold, make_room)


def move_aside(
    study_path: Path, now: datetime | None = None, *, is_held: bool = False
) -> Path | None:
    """Rename an existing study to ``NAME.old-YYYYmmdd-HHMMSS`` (UTC) and return its new path.

    None where there was nothing to move. Nothing is ever deleted. ``is_held``: by the caller. Raises
    `StudyError` where another kltune is working in it.
    """
    study_path = study_path.resolve()
    if not study_path.exists():
        return None
    refuse_foreign(study_path)
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
    target = study_path.with_name(f"{study_path.name}.old-{stamp}")
    count = 2
    while target.exists():
        target = study_path.with_name(f"{study_path.name}.old-{stamp}-{count}")
        count += 1
    with contextlib.nullcontext() if is_held else lock_study(study_path):
        if is_empty(study_path):
            return None
        study_path.rename(target)
    return target


@contextmanager
def briefly_alone(study_path: Path) -> Generator[None]:
    """Wait for and hold what members hold while one of them reads a small file and writes it anew."""
    descriptor = os.open(study_path / FILES_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
