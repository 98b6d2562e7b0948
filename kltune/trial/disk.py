"""A file of the study that must reach the disk in; it lies there whole out, or one sentence about the disk.

Whatever the operating system refuses while the record is written becomes a `DiskError`: full, over a quota,
read-only, unplugged, a folder where a file should be. The study stops and can go on when there is room.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kltune.errors import DiskError

RESERVE: Final = ".reserve"
"""In the study folder while a search runs."""
RESERVE_BYTES: Final = 1 << 20
"""Enough for the last words of some trials and for a few transactions of sqlite."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM})
"""What file systems that know no sync of a folder answer."""


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Turn what the operating system refuses while ``path`` is written into one sentence.

    Raises:
        DiskError: naming the file, what is wrong, and the free space.
    """
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def disk_error(path: Path, error: OSError) -> DiskError:
    """The sentence for ``error``, met while ``path`` was written; the file that it names itself is shown."""
    shown = Path(os.fsdecode(error.filename)) if error.filename else path
    what = error.strerror or str(error)
    free = free_bytes(path)
    room = "" if free is None else f"; {size_words(free)} are free there"
    help_ = "make room" if error.errno in _NO_ROOM else "see to it that it can be written"
    text = f"{shown}: can't be written ({what}{room}): {help_}, then the same command goes on from here"
    return DiskError(text, str(path))


def os_error_of(text: str, path: Path) -> OSError | None:
    """The operating system's error that a library put into words, like ``... (os error 28)``; None where it is none."""
    found = re.search(r"\(os error (\d+)\)", text)
    return (
        None if found is None else OSError(number := int(found[1]), os.strerror(number), str(path))
    )


def free_bytes(path: Path) -> int | None:
    """Bytes that this process may still write where ``path`` is or would be; None where nobody knows."""
    for there in (path, *path.absolute().parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(there).free
    return None


def size_words(size: float) -> str:
    """``525 kB``, ``29.3 MB``, ``1.2 GB``: thousands, as disks are sold."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def sync_file(path: Path) -> None:
    """Wait until the file's bytes are on the disk; an absent file has none.

    Raises:
        OSError: they can't be written.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            error.filename = str(path)
            raise
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, as far as that can be done."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


@contextmanager
def reserve(study_path: Path) -> Generator[None]:
    """Keep some room inside the block, to be given back when the disk is full: how trials ended is written into it.

    Members share it; whoever ends first removes it, and the others go without.
    """
    _hold_reserve(study_path)
    try:
        yield
    finally:
        remove(study_path / RESERVE)


def _hold_reserve(study_path: Path) -> None:
    path = study_path / RESERVE
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size >= RESERVE_BYTES:
            return
    try:
        # Random, so that no file system stores it in less.
        path.write_bytes(os.urandom(RESERVE_BYTES))
    except OSError:
        remove(path)  # no room, no reserve
