"""Which processes of a group live, and waiting for something to come about."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psutil


def members(group: int) -> list[int]:
    """Processes of a group that live (a zombie has nobody to wait for it in some containers)."""
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            is_alive = process.info["status"] != psutil.STATUS_ZOMBIE
            if is_alive and os.getpgid(process.pid) == group:
                found.append(process.pid)
        except ProcessLookupError:
            continue
    return found


def eventually(is_so: Callable[[], bool], patience_s: float = 20.0) -> bool:
    until = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
