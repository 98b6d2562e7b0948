"""A Python program in, whether it came to its end out: run in a child process that is confined and killed in time."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kltune.errors import EnvironmentMissingError

LOG = logging.getLogger(__name__)

_MAIN: Final = Path(__file__).with_name("confined_code.py")
_MIB: Final = 1 << 20
_START_SECONDS: Final = 10.0
"""For the interpreter to come up, beside the program's own time."""
_MAX_SAID: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use."""

    seconds: float
    """Until it is killed."""
    memory_mib: int
    """Address space, the interpreter's own 20 MiB or so included."""
    file_mib: int
    """Largest file that it may write."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended."""

    has_passed: bool
    """It came to its end without an exception."""
    problem: str
    """What it raised, or that it was ended; empty where it passed."""
    unprevented: tuple[str, ...] = ()
    """What this kernel could not keep it from."""


def run_program(program: str, limits: Limits) -> Finished:
    """Run ``program`` in a scratch folder of its own, without the environment of this process.

    Raises:
        EnvironmentMissingError: no child process can be started here.
    """
    word = secrets.token_hex(16)
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="kltune-", ignore_cleanup_errors=True) as folder:
        job = {
            "program": program,
            "folder": folder,
            "word": word,
            "memory_bytes": limits.memory_mib * _MIB,
            "file_bytes": limits.file_mib * _MIB,
            "cpu_seconds": math.ceil(limits.seconds) + 1,
        }
        try:
            child = _start(folder, writing)
        finally:
            os.close(writing)
        try:
            _send(child, json.dumps(job).encode())
            said, is_late = _hear(reading, limits.seconds)
        finally:
            os.close(reading)
            end_group(child)
    return _finished(said, word, limits, is_late=is_late)


def end_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and whatever it started, and see it gone."""
    if child.returncode is None:  # once it was waited for, its number may be another's
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    child.wait()


def _start(folder: str, writing: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(_MAIN), str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"},
            start_new_session=True,
            pass_fds=(writing,),
        )
    except OSError as error:
        raise EnvironmentMissingError(f"no child process can be started here ({error})") from error


def _send(child: subprocess.Popen[bytes], job: bytes) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(job)
        child.stdin.close()


def _hear(pipe: int, limit: float) -> tuple[list[str], bool]:
    """Lines that the child wrote (at most two are read), and whether its time ran out."""
    heard = b""
    until = time.monotonic() + _START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while heard.count(b"\n") < 2 and len(heard) < _MAX_SAID:
            if not selector.select(max(0.0, until - time.monotonic())):
                return heard.decode(errors="replace").splitlines(), True
            part = os.read(pipe, 4096)
            if not part:
                break
            if b"\n" not in heard and b"\n" in part:
                until = time.monotonic() + limit  # it is up; its own time begins
            heard += part
    return heard.decode(errors="replace").splitlines(), False


def _finished(said: list[str], word: str, limits: Limits, *, is_late: bool) -> Finished:
    try:
        lines = [json.loads(line) for line in said]
    except ValueError:
        lines = []
    if not lines:
        return Finished(False, "the child process did not come up")
    unprevented = tuple(map(str, lines[0])) if isinstance(lines[0], list) else ()
    if len(lines) > 1 and lines[1] == word:
        return Finished(True, "", unprevented)
    if len(lines) > 1:
        return Finished(False, str(lines[1]), unprevented)
    if is_late:
        return Finished(False, f"was ended after {limits.seconds:g} s", unprevented)
    return Finished(False, "left, or was ended by the kernel", unprevented)
