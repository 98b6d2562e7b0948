"""A study folder in, the right to write in it out: one kltune at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kltune.errors import StudyError
from kltune.study.holder import this_machine
from kltune.study.place import LOCK, is_empty, is_foreign

_TRIES: Final = 100
"""Others that take the folder back while this process is about to lock it."""


@contextmanager
def lock_study(study_path: Path) -> Generator[None]:
    """Hold the study exclusively; the folder is made if it is absent, and taken back if it stayed empty.

    The lock belongs to the process: it is free again whenever the process is gone. Raises
    `StudyError` where another kltune holds it (a sweep, a confirmation, ...), or where the path can't be a folder.
    """
    made = [path for path in (study_path, *study_path.parents) if not path.exists()]
    descriptor = _locked(study_path)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {this_machine()}\n".encode(), 0)
        yield
    finally:
        _take_back(study_path, made)
        os.close(descriptor)


def _locked(study_path: Path) -> int:
    """The lock file's descriptor, locked: of the file that is at its path now, not of one that was removed."""
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
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            words = os.read(descriptor, 256).decode(errors="replace").split()
            os.close(descriptor)
            who = f" (process {words[0]})" if words else ""
            raise StudyError(
                f"another kltune is working in {study_path}{who}; wait for it or stop it"
            ) from None
        if _is_at(descriptor, lock):
            return descriptor
        os.close(descriptor)
    raise StudyError(f"{study_path}: can't be used as a study folder (it is removed all the time)")


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


@contextmanager
def claim_study(study_path: Path, *, fresh: bool = False) -> Generator[Callable[[], Path | None]]:
    """`lock_study` for a sweep, from before it reads anything: whoever comes second is refused.

    What it gives moves an old study aside where ``fresh`` asks for that, as `move_aside` does, and holds
    the new folder instead.
    """
    if fresh:
        refuse_foreign(study_path)
    with contextlib.ExitStack() as held:
        held.enter_context(lock_study(study_path))

        def make_room() -> Path | None:
            old = move_aside(study_path, is_held=True) if fresh else None
            if old is not None:
                held.close()
                held.enter_context(lock_study(study_path))
            return old

        yield make_room


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
