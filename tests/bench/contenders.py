"""Jobs in, running processes out that take a step when told and sleep otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import psutil

from tests.bench.job import Job

CHILD = Path(__file__).with_name("child.py")


@dataclass(frozen=True, slots=True)
class Contender:
    """Processes that step at the same time."""

    name: str
    jobs: tuple[Job, ...]

    @property
    def slots(self) -> int:
        """Trials that one step of all processes advances."""
        return sum(job.slots for job in self.jobs)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a contender: trial-steps are its slots."""

    seconds: float
    """Until the last of its processes was done."""
    phases: dict[str, float]
    """Seconds by phase, summed over its processes."""
    tokens: int
    mean_length: float
    """Tokens per completion."""
    foreign: float = 0.0
    """Processors that others used meanwhile."""


def spread(base: Job, slots: int, workers: int, threads: int) -> Contender:
    """kltune with ``slots`` trials over ``workers`` processes that share the threads."""
    assert slots % workers == 0, f"{slots} slots don't divide among {workers} workers"
    own, each = slots // workers, max(1, threads // workers)
    job = replace(base, trainer="kltune", slots=own, threads=each)
    jobs = tuple(replace(job, first_trial=own * worker) for worker in range(workers))
    return Contender(f"kltune K={slots} W={workers}", jobs)


class Child:
    """One process and its pipe."""

    def __init__(self, job: Job, folder: Path) -> None:
        """Start it; ``folder`` takes its temporary files and what it says on stderr."""
        self._errors = (folder / f"stderr-{id(self)}").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), job.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_environment(folder),
        )
        self.peak_mb = 0.0

    def tell(self) -> None:
        """Ask for one step."""
        pipe = _pipe(self.process.stdin)
        pipe.write("step\n")
        pipe.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for the answer.

        Raises:
            RuntimeError: the process ended instead; its last words are in the message.
        """
        line = _pipe(self.process.stdout).readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"a measured process ended:\n{self._errors.read()[-4000:]}")
        answer = json.loads(line)
        self.peak_mb = answer.pop("peak_mb")
        return answer

    def stop(self) -> None:
        """End it."""
        _pipe(self.process.stdin).close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _pipe(self.process.stdout).close()
        self._errors.close()


class Running:
    """A contender whose processes are up."""

    def __init__(self, contender: Contender, folder: Path) -> None:
        """Start its processes; they load at the same time."""
        self.contender = contender
        self._children: list[Child] = []
        for job in contender.jobs:
            self._children.append(Child(job, folder))
        self._greetings: list[dict[str, Any]] = []

    def wait(self) -> dict[str, Any]:
        """Wait until all have loaded; return what the first says of itself."""
        self._greetings = [child.hear() for child in self._children]
        return self._greetings[0]

    def ask(self) -> tuple[float, list[dict[str, Any]]]:
        """One step of all processes at once: seconds until the last is done, and their answers."""
        start = time.perf_counter()
        for child in self._children:
            child.tell()
        answers = [child.hear() for child in self._children]
        return time.perf_counter() - start, answers

    def step(self) -> Step:
        """One step of every trial."""
        others = busy_seconds() - self.cpu_seconds()
        seconds, answers = self.ask()
        foreign = (busy_seconds() - self.cpu_seconds() - others) / seconds
        phases: dict[str, float] = {}
        for answer in answers:
            for name, value in answer["phases"].items():
                phases[name] = phases.get(name, 0.0) + value
        lengths = [answer["mean_length"] for answer in answers]
        tokens = sum(answer["tokens"] for answer in answers)
        return Step(seconds, phases, tokens, sum(lengths) / len(lengths), foreign)

    @property
    def peak_mb(self) -> float:
        """Peak resident memory of its processes, added (shared pages count in each)."""
        return sum(child.peak_mb for child in self._children)

    def cpu_seconds(self) -> float:
        """Processor time that its processes have used so far."""
        times = [psutil.Process(child.process.pid).cpu_times() for child in self._children]
        return sum(t.user + t.system for t in times)

    def stop(self) -> None:
        """End its processes."""
        for child in self._children:
            child.stop()


def busy_seconds() -> float:
    """Processor time that everything on the machine has used so far."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system


def _environment(folder: Path) -> dict[str, str]:
    """kltune's own OpenMP settings for every contender, and temporary files where the parent cleans up."""
    from kltune.launch.threads import SPIN_COUNT

    own = {"TMPDIR": str(folder), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    # A shell's OMP_NUM_THREADS would cap what torch starts with; each job sets its own number.
    rest = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return {"GOMP_SPINCOUNT": SPIN_COUNT, **rest, **own}


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
