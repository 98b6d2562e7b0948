"""What a machine offers and what timed steps took in, workers, slots and threads out: pure rules.

A *worker* is a process with a bank of its own: the main one, or several beside it. One frozen base that fills every core with one
trial gains nothing from a second trial beside it; small models don't fill them, and then several
workers with few threads each do more trial-steps per second. Which of the two a machine and a model
are is measured (kltune.launch.calibrate), never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_WORKERS = 8
"""Processes at most: each holds a base of its own, and proposals made at once know nothing of each other."""

PROMISE = 0.9
"""Workers are started where steps with few threads promise at most this share of the time alone."""

GAIN = 0.95
"""They are kept where they are then seen to take at most this share."""

START_UP_S = 10.0
"""What starting workers takes, all in all: imports, the base, the prompts (2 cores: 4 to 8 s)."""

MEMORY_SHARE = 0.8
"""Of the memory that is left, what workers may fill."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a study's trials run."""

    workers: int
    """Processes that train; where they are several, the main one trains nothing and coordinates."""
    slots: int
    """Trials at once over all workers."""
    threads: int
    """Of each worker."""

    def describe(self) -> str:
        """For people, like ``2 workers of 1 thread``."""
        workers = f"{self.workers} worker{'s' * (self.workers > 1)}"
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        slots = "" if self.slots == self.workers else f", {self.slots} trials at once"
        return f"{workers} of {threads}{slots}"


@dataclass(frozen=True, slots=True)
class Calibration:
    """A placement and what was measured on the way to it."""

    placement: Placement
    alone_step_s: float | None
    """Seconds per trial-step in one process with all threads; none: not measured."""
    placed_step_s: float | None
    """Seconds per trial-step in the placement; none: not measured."""
    peak_gflops: float | None
    """Fp32 matrix product with all threads, 1e9 operations per second; none: not measured."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the spec asks for."""

    slots: int | Literal["auto"]
    workers: int | Literal["auto"]
    trials: int
    is_full: bool
    """Full fine-tuning: one trial per process."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What this process may use."""

    device: str
    """``cpu`` or ``cuda``."""
    threads: int
    """That one process would use by itself; no more workers than this."""
    device_slots: int
    """Trials that fit and pay on one device; 1 on a CPU."""


def alone(wish: Wish, machine: Machine) -> Placement:
    """One process with all threads."""
    if wish.is_full:
        return Placement(1, 1, machine.threads)
    slots = machine.device_slots if wish.slots == "auto" else wish.slots
    return Placement(1, min(slots, wish.trials), machine.threads)


def spread(wish: Wish, machine: Machine, fitting: int) -> Placement | None:
    """Several workers, where the wish and the machine leave room for them; none: there is nothing to choose.

    ``fitting``: processes that fit in memory. Workers that are asked for by number are given, in
    memory or not, but never more than there are trials for.
    """
    most = wish.trials if wish.slots == "auto" else min(wish.slots, wish.trials)
    if wish.workers != "auto":
        workers = min(wish.workers, most)
    elif machine.device == "cpu":
        workers = min(machine.threads, fitting, most, MAX_WORKERS)
    else:
        workers = 1
    if workers < 2:
        return None
    slots = workers if wish.slots == "auto" or wish.is_full else most
    return Placement(workers, slots, max(1, machine.threads // workers))


@dataclass(frozen=True, slots=True)
class Promise:
    """What several workers would do if they did not disturb each other; seconds per trial-step."""

    alone_s: float
    """One process with all threads."""
    few_threads_s: float
    """One process with a worker's threads."""
    workers: int
    trial_steps: float
    """Of the whole study; an evaluation counts as the steps that draw as many completions."""

    @property
    def placed_s(self) -> float:
        """Of all workers together, at best."""
        return self.few_threads_s / self.workers

    def is_worth_a_try(self) -> bool:
        """Whether starting them may pay: clearly faster, and more saved than starting takes."""
        saved_s = (self.alone_s - self.placed_s) * self.trial_steps
        return self.placed_s < PROMISE * self.alone_s and saved_s > START_UP_S


def is_gain(alone_s: float, placed_s: float) -> bool:
    """Whether workers that run together do better than one process; seconds per trial-step."""
    return placed_s < GAIN * alone_s


def processes_that_fit(process_bytes: float, available_bytes: float) -> int:
    """How many processes of this size fit beside the one that runs, which is not in ``available_bytes`` any more."""
    return int(MEMORY_SHARE * available_bytes / max(process_bytes, 1.0))


def device_slots(most: int, free_bytes: float, base_bytes: float, slot_bytes: float) -> int:
    """Trials at once on a CUDA device: up to ``most``, while they fit twice over beside one more base.

    An estimate, on the safe side: ``slot_bytes`` counts the key-value cache of a slot's rollout,
    the largest part that no smaller micro-batch shrinks; activations are what the other half and
    the room of the base are for. What still runs out of memory shrinks as it goes.
    """
    room = free_bytes - base_bytes
    return max(1, min(most, int(room / (2 * max(slot_bytes, 1.0)))))


def worker_of(slot: int, workers: int) -> tuple[int, int]:
    """(worker, slot in its bank): the first trials go to one worker each."""
    return slot % workers, slot // workers


def slots_of(worker: int, placement: Placement) -> int:
    """Slots of a worker's bank."""
    return len(range(worker, placement.slots, placement.workers))
