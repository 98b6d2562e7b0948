"""Threads, cores and memory: settings of the OpenMP runtime and of malloc, and how much this process may use.

The runtime reads its settings when torch loads it: call :func:`share_cores` before torch is imported.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SPIN_COUNT = "20000"
"""How long an idle thread spins before it sleeps (libgomp's default is 300,000).

Steps of a small model are many short parallel regions. With the default, other busy
processes make them several times slower, because idle threads hold the cores that working
ones wait for. Measured on 2 cores, seconds per kitchen step, quiet / beside two busy
processes: 1,000 spins 0.21 / 0.56, 20,000 0.18 / 0.45, 300,000 0.18 / 1.04.
"""


def share_cores() -> None:
    """Let idle threads sleep early, unless the user's environment says otherwise."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Parameters of glibc's mallopt(3)."""
_KEPT_BYTES = 2**30


def keep_memory() -> None:
    """Keep freed blocks for the next tensors instead of giving them back to the kernel at once.

    A step makes and frees the same large blocks again and again; fetched anew, each costs its
    page faults (11,000 in a step of a 1 M-parameter model, next to none with this). Does nothing where malloc is not glibc's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


_CGROUP = Path("/sys/fs/cgroup")


def allowed_threads(cgroup: Path = _CGROUP) -> int:
    """Threads that torch would use by itself, but no more than the cores that this process may run on.

    A container's share of processor time counts as well: torch does not look at it.
    """
    import torch

    cores = min(torch.get_num_threads(), len(os.sched_getaffinity(0)))
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
        share = int(quota) / int(period)
    except (OSError, ValueError):  # no limit is "max", an older kernel has no such file
        return cores
    return max(1, min(cores, int(share)))


def available_memory(cgroup: Path = _CGROUP) -> int:
    """Bytes that further processes may fill: the machine's, or what its container has left."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        limit = int((cgroup / "memory.max").read_text(encoding="ascii"))
        used = int((cgroup / "memory.current").read_text(encoding="ascii"))
        stat = (cgroup / "memory.stat").read_text(encoding="ascii")
        # Files that were read once are counted as used, and make way for whoever needs the room.
        used -= sum(
            int(n) for key, n in map(str.split, stat.splitlines()) if key == "inactive_file"
        )
    except (OSError, ValueError):
        return free
    return max(0, min(free, limit - used))


@contextmanager
def torch_threads(count: int) -> Generator[None]:
    """Compute with ``count`` threads inside."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
