"""Nothing in; out: which machine this is, and whether a process of it lives."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


def this_machine() -> str:
    """What tells apart where the number of a process means something: one boot, and one container of it."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{(PROC / 'self/ns/pid').readlink()}"
    except OSError:
        digest = hashlib.sha256(platform.node().encode(errors="replace")).hexdigest()
        return digest[:32]  # a system without /proc: its name, which nobody else need read


def is_same_system(machine: str) -> bool:
    """Whether this is the same running system, in another container perhaps: processes share memory there."""
    return machine.partition("/")[0] == this_machine().partition("/")[0]


def lives(pid: int) -> bool:
    """Whether a process of this number is there (one that ended and was not waited for as well)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
