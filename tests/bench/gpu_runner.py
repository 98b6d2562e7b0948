"""Contenders in, what each step took out: built, warmed and stepped in turn within a budget of seconds."""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from kltune.errors import KltuneError
from tests.bench.gpu_contenders import Contender, Memory, Step
from tests.bench.gpu_limits import Limits, position_bytes, scoring_flops
from tests.bench.gpu_model import Job
from tests.bench.gpu_table import decode, ratios, summary

FAULTS = (
    AssertionError,
    AttributeError,
    ImportError,
    IndexError,
    KeyError,
    KltuneError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What ends one contender only: the others' figures are worth having."""


class Clock:
    """Seconds since the start, and whether something of known length still fits."""

    def __init__(self, budget_s: float) -> None:
        self._start, self._budget = time.perf_counter(), budget_s

    @property
    def spent(self) -> float:
        """So far."""
        return time.perf_counter() - self._start

    def allows(self, seconds: float) -> bool:
        """Whether so many more stay within the budget."""
        return self.spent + seconds <= self._budget


class Runner:
    """Builds, warms and steps contenders; keeps what they took and writes it down after every step."""

    def __init__(self, args: argparse.Namespace, job: Job) -> None:
        self._args, self._job = args, job
        self.clock = Clock(args.budget)
        self._memory = Memory(job)
        self._steps: dict[str, list[Step]] = {}
        self._peaks: dict[str, list[float | None]] = {}
        self._last: dict[str, float] = {}
        self._slots: dict[str, int] = {}
        self.facts: dict[str, Any] = {"faults": {}}
        self.limits: Limits | None = None

    def attempt(self, name: str, work: Callable[[], Any]) -> Any:
        """Do it; a fault is printed, kept, and None comes back."""
        try:
            return work()
        except FAULTS as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.facts["faults"][name] = f"{type(error).__name__}: {first}"
            print(f"{name} failed: {self.facts['faults'][name]}", flush=True)
            if self._args.traceback:
                traceback.print_exc()
            return None

    def build(self, name: str, make: Callable[[], Contender]) -> Contender | None:
        """Build and warm up one; None if it failed."""

        def work() -> Contender:
            before, start = self._memory.held(), self.clock.spent
            made = make()
            made.warm()
            self._memory.built(made.name, before)
            self._slots[made.name] = made.slots
            seconds = self.clock.spent - start
            self._last[made.name] = seconds / 2
            print(f"  {made.name}: built and warm in {seconds:.1f} s", flush=True)
            return made

        return self.attempt(name, work)

    def rounds(self, contenders: list[Contender], counts: dict[str, int]) -> None:
        """Each in turn, round after round, as often as ``counts`` says and the budget allows."""
        for index in range(max(counts.values(), default=0)):
            for contender in contenders:
                name = contender.name
                wanted = index < counts[name] and name not in self.facts["faults"]
                if wanted and self.clock.allows(self._last.get(name, 0.0)):
                    self.attempt(name, lambda contender=contender: self._measure(contender))

    def _measure(self, contender: Contender) -> None:
        name, start = contender.name, self.clock.spent
        in_use = self._memory.start()
        step = contender.step()
        self._last[name] = self.clock.spent - start
        self._steps.setdefault(name, []).append(step)
        self._peaks.setdefault(name, []).append(self._memory.peak_gb(name, in_use))
        print(
            f"  {name}: {step.step_s:.4g} s per trial-step (rollout {step.rollout_s:.4g}, reference "
            f"{step.reference_s:.4g}, update {step.update_s:.4g})",
            flush=True,
        )
        self.write()

    def rows(self) -> dict[str, dict[str, Any]]:
        """One a contender, as the table shows them."""
        job, found = self._job, {}
        for name, steps in self._steps.items():
            slots = self._slots[name]
            row: dict[str, Any] = {"slots": slots, **summary([asdict(step) for step in steps])}
            row |= decode(row, slots, job.completions, job.tokens)
            peaks = [peak for peak in self._peaks[name] if peak is not None]
            row["peak_gb"] = max(peaks) if peaks else None
            if self.limits is not None:
                least = position_bytes(job, slots) / self.limits.bytes_per_s
                row["decode_share"] = least / (row["position_ms"] / 1e3)
                scoring = row["reference_s"] + row["update_s"]
                row["scoring_share"] = scoring_flops(job) / self.limits.flops_per_s / scoring
            row["facts"] = steps[-1].facts
            found[name] = row
        return found

    def write(self) -> None:
        """All that is known so far."""
        rows = self.rows()
        found = {
            **self.facts,
            "job": asdict(self._job),
            "limits": None if self.limits is None else asdict(self.limits),
            "rows": rows,
            "ratios": ratios(rows),
            "steps": {name: [asdict(s) for s in steps] for name, steps in self._steps.items()},
            "seconds": self.clock.spent,
        }
        if self._args.out is not None:
            self._args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
