"""A program: one member of a study, with the fake bank, quick trials that are really recorded, and faults on demand.

    python tests/busy_member.py FOLDER --trials N [--slots K] [--steps S] [--step-s 0.01] [--lone] [--url URL]

It prints a line of JSON when it ends: what it did, and how long its asks, tells and waits took. Without
arguments it starts such members on demand (`nursery`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.study import StudySpec
from kltune.study.address import resolve_address
from kltune.study.asked import Asked
from kltune.study.crew import join
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.space import fixed_trials
from kltune.study.storage import OpenStudy, open_study
from kltune.trial.outcome import TrialOutcome
from tests.fake_bank import FakeBank, small_spec
from tests.small_search import SCALE


def busy_spec(trials: int, steps: int) -> StudySpec:
    return small_spec(
        budget={"trials": trials, "retries": 0}, trainer={"steps": steps}, evaluate={"every": 4}
    )


class BusyBank(FakeBank):
    """Takes its time over each step, and notes in each checkpoint which process wrote it."""

    def __init__(self, slots: int, steps: int, step_s: float) -> None:
        super().__init__(slots, steps=steps, prompts=16)
        self._step_s = step_s
        self.noted["pid"] = os.getpid()

    def train_step(self) -> tuple[StepMetrics, ...]:
        time.sleep(self._step_s)
        return super().train_step()

    def evaluate(self, slots: Any) -> tuple[EvalMetrics, ...]:
        time.sleep(self._step_s)
        return super().evaluate(slots)


class TimedLedger(Ledger):
    """Notes how long each call took, in seconds."""

    def __init__(self, opened: OpenStudy, *args: Any) -> None:
        super().__init__(opened, *args)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        take = opened.whose_turn._hold  # pyright: ignore[reportPrivateUsage]

        @contextmanager
        def hold() -> Generator[None]:
            begin = time.perf_counter()
            with take():
                self.seconds["lock"].append(time.perf_counter() - begin)
                yield

        opened.whose_turn._hold = hold  # pyright: ignore[reportPrivateUsage]

    def ask(self) -> Asked | None:
        return self._timed("ask", super().ask)

    def tell(self, asked: Asked, outcome: TrialOutcome, *, may_retry: bool = True) -> bool:
        tell = super().tell
        return self._timed("tell", lambda: tell(asked, outcome, may_retry=may_retry))

    def _timed(self, name: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        try:
            return call()
        finally:
            self.seconds[name].append(time.perf_counter() - begin)


def shift_clock(off: float, jump: float) -> None:
    """What this process reads as the time of day; it jumps to and fro with every reading."""
    if not off and not jump:
        return
    real, calls = time.time, itertools.count()
    time.time = lambda: real() + off + jump * (next(calls) % 3 - 1)


def nursery() -> None:
    """Start members from lines of JSON: at once, since all is imported; answers each with its process number."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        wanted = json.loads(line)
        pid = os.fork()
        if pid == 0:
            for descriptor, name in ((1, "said"), (2, "log")):
                path = os.open(wanted[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(path, descriptor)
            main(wanted["argv"])
            sys.stdout.flush()
            os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--step-s", type=float, default=0.01)
    parser.add_argument("--url")
    parser.add_argument("--clock-off", type=float, default=0.0, help="seconds, of the wall clock")
    parser.add_argument("--clock-jumps", action="store_true", help="an hour to and fro")
    parser.add_argument("--lone", action="store_true")
    given = parser.parse_args(argv)
    shift_clock(given.clock_off, 3600.0 if given.clock_jumps else 0.0)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    spec = busy_spec(given.trials, given.steps)
    address = resolve_address(given.folder, spec, given.url, {})
    with nullcontext() if given.lone else join(given.folder, "worker") as member:
        opened = open_study(given.folder, spec, address)
        ledger = TimedLedger(opened, fixed_trials(spec, SCALE), member)
        end = run_search(BusyBank(given.slots, given.steps, given.step_s), ledger, SCALE.sigma)
        opened.close()
    facts = {
        "ended": end.trials_ended,
        "waits": opened.patience.waits,
        "seconds": dict(ledger.seconds),
    }
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main() if sys.argv[1:] else nursery()
