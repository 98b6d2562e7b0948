"""Settings of the OpenMP runtime, which reads them when torch loads it: call before torch is imported."""

from __future__ import annotations

import os

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
