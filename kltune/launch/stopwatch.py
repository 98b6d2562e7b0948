"""A bank or a device in, seconds per trial-step, operations per second and bytes out."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable

from kltune.launch.threads import allowed_threads, torch_threads
from kltune.spec.trial import TrialSpec
from kltune.trainer.protocol import TrialBank

SLOW_STEP_S = 20.0
"""A trial-step from which on one step must do: nothing is left out as warming up."""

ENOUGH_S = 0.5
"""Timed steps go on until they have taken so long."""

MOST_STEPS = 6
"""But for no more of them than these."""


def step_seconds(
    bank: TrialBank, setting: TrialSpec, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Median seconds of a trial-step with every slot occupied; the bank is left as it was."""
    slots = bank.free_slots()
    for slot in slots:
        bank.admit(slot, slot, setting, None)

    def step() -> float:
        start = clock()
        bank.train_step()
        return (clock() - start) / len(slots)

    try:
        timed = [step()]
        if timed[0] <= SLOW_STEP_S:
            timed = [step()]  # the first one warmed up
            while sum(timed) < ENOUGH_S and len(timed) < MOST_STEPS:
                timed.append(step())
    finally:
        for slot in slots:
            bank.evict(slot)
    return statistics.median(timed)


def peak_gflops(device: str) -> float:
    """Fp32 matrix product with the threads that one process has, 1e9 operations per second; median of 3."""
    import torch

    size = 4096 if device == "cuda" else 1536
    matrix = torch.ones(size, size, device=device)
    seconds: list[float] = []
    with torch.no_grad(), torch_threads(allowed_threads()):
        for _ in range(4):  # the first one warms up
            start = time.perf_counter()
            product = matrix @ matrix
            float(product[0, 0])  # waits for a device that works on its own
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(seconds[1:]) / 1e9


def process_bytes() -> int:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
