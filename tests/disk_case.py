"""Disks that are small, full or read-only for real: what the tests of disk faults run on."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _mount(*arguments: str) -> str | None:
    """Why it did not work."""
    if os.geteuid() != 0:
        return "only root may mount"
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no mount command"
    return None if done.returncode == 0 else done.stderr.strip() or "mount failed"


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


@contextmanager
def small_disk(path: Path, size: str) -> Generator[Path]:
    """A disk of its own of that size, like ``3m``; the test is skipped where none can be had."""
    path.mkdir()
    if (why := _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))) is not None:
        pytest.skip(f"no disk of its own: {why}")
    try:
        yield path
    finally:
        _unmount(path)


@contextmanager
def read_only(path: Path) -> Generator[None]:
    """The folder can be read and not written, by root neither."""
    for arguments in (("--bind", str(path), str(path)), ("-o", "remount,bind,ro", str(path))):
        if (why := _mount(*arguments)) is not None:
            pytest.skip(f"nothing can be made read-only for root: {why}")
    try:
        yield
    finally:
        _unmount(path)


@contextmanager
def largest_file(size: int) -> Generator[None]:
    """No file of this process may grow beyond ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill(path: Path) -> None:
    """Write a file until nothing more goes in."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
