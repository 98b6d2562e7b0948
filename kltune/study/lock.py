"""A study folder in, the right to write in it out: one kltune at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from kltune.errors import StudyError
from kltune.study.place import LOCK, is_foreign


@contextmanager
def lock_study(study_path: Path) -> Generator[None]:
    """Hold the study exclusively; the folder is made if it is absent.

    The lock belongs to the process: it is free again whenever the process is gone. Raises
    `StudyError` where another kltune holds it (a sweep, a confirmation, ...), or where the path can't be a folder.
    """
    try:
        study_path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(study_path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StudyError(f"{study_path}: can't be used as a study folder ({error})") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 64).decode(errors="replace").strip()
            who = f" (process {holder})" if holder else ""
            raise StudyError(
                f"another kltune is working in {study_path}{who}; wait for it or stop it"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def move_aside(study_path: Path, now: datetime | None = None) -> Path | None:
    """Rename an existing study to ``NAME.old-YYYYmmdd-HHMMSS`` (UTC) and return its new path.

    None where there was nothing to move. Nothing is ever deleted. Raises `StudyError` where
    another kltune is working in it.
    """
    study_path = study_path.resolve()
    if not study_path.exists():
        return None
    if is_foreign(study_path):
        raise StudyError(f"{study_path}: is no study of kltune, so --fresh leaves it alone")
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
    target = study_path.with_name(f"{study_path.name}.old-{stamp}")
    count = 2
    while target.exists():
        target = study_path.with_name(f"{study_path.name}.old-{stamp}-{count}")
        count += 1
    with lock_study(study_path):
        study_path.rename(target)
    return target
