"""Where the seconds of a step go: phases in, exclusive seconds per phase out."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch

PHASES: tuple[str, ...] = ("rollout", "score", "reference", "logprobs", "update")
"""Sampling; the scorers; the reference's forwards; the policy's forwards and both heads; gradients and optimiser."""


class Phases:
    """Adds up seconds; a phase inside another one stops the outer one's clock."""

    def __init__(
        self, device: torch.device, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """``device``: work on CUDA is waited for where a phase ends."""
        self._is_cuda = device.type == "cuda"
        self._clock = clock
        self._seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._running: list[str] = []
        self._since = self._started = self._clock()

    def restart(self) -> None:
        """A new step begins."""
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._running.clear()
        self._since = self._started = self._clock()

    @contextmanager
    def of(self, name: str) -> Generator[None]:
        """What runs inside counts for ``name``."""
        self._lap()
        self._running.append(name)
        try:
            yield
        finally:
            self._lap()
            self._running.pop()

    def metrics(self, num_slots: int) -> dict[str, float]:
        """``time/*`` of one slot: seconds since the restart, divided by the slots that shared them."""
        found = {f"time/{name}_s": s / num_slots for name, s in self._seconds.items()}
        return {**found, "time/step_s": (self._clock() - self._started) / num_slots}

    def _lap(self) -> None:
        if self._is_cuda:
            torch.cuda.synchronize()
        now = self._clock()
        if self._running:
            self._seconds[self._running[-1]] += now - self._since
        self._since = now
