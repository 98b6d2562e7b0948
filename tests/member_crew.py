"""Several processes of `tests.busy_member` on one study, killed, stopped and replaced; and what they left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from kltune.study.address import resolve_address
from kltune.study.lives import lives_of
from kltune.study.storage import open_study
from kltune.trial.record import read_trials
from tests.busy_member import busy_spec

ROOT = Path(__file__).parents[1]
LEASE_S = 2.0


@dataclass(frozen=True)
class Process:
    """A member that was started; it is no child of this process."""

    pid: int
    said: Path

    def is_over(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        while not self.is_over():
            time.sleep(0.01)


@dataclass
class Crew:
    """Members of one study, as processes."""

    folder: Path
    trials: int
    flags: Sequence[str] = ()
    running: list[Process] = field(default_factory=list[Process])
    _started: int = 0
    _nursery: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> Process:
        if self._nursery is None:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.busy_member"],
                cwd=ROOT,
                env={**os.environ, "KLTUNE_LEASE": str(LEASE_S), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        said = self.folder / f"said-{self._started}"
        self._started += 1
        argv = [str(self.folder), "--trials", str(self.trials), *self.flags, *more]
        wanted = {"argv": argv, "said": str(said), "log": str(self._log)}
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps(wanted) + "\n")
        self._nursery.stdin.flush()
        process = Process(int(self._nursery.stdout.readline()), said)
        self.running.append(process)
        return process

    def kill_at_random(self, kills: int, seed: int, pause: tuple[float, float]) -> int:
        """Kill one after another and replace it, until all is done or ``kills`` were; return how many."""
        dice = random.Random(seed)
        for done in range(kills):
            time.sleep(dice.uniform(*pause))
            if any(process.is_over() for process in self.running):
                return done  # one has seen the end of the study
            victim = dice.choice(self.running)
            victim.kill()
            self.running.remove(victim)
            self.start()
        return kills

    def wait(self, timeout_s: float) -> list[dict[str, Any]]:
        """What each of those that are left says at its end."""
        until = time.monotonic() + timeout_s
        while not all(process.is_over() for process in self.running):
            assert time.monotonic() < until, self.log()[-3000:]
            time.sleep(0.05)
        said = [process.said.read_text() for process in self.running]
        assert all(said), self.log()[-3000:]
        return [json.loads(text) for text in said]

    def close(self) -> None:
        for process in self.running:
            process.kill()
        if self._nursery is not None:
            self._nursery.communicate()

    @property
    def _log(self) -> Path:
        return self.folder / "members.log"

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""


def trials_of(folder: Path, num: int, steps: int, url: str | None = None) -> list[FrozenTrial]:
    spec = busy_spec(num, steps)
    opened = open_study(folder, spec, resolve_address(folder, spec, url, {}))
    trials = opened.optuna_study.get_trials()
    opened.close()
    return trials


def check_finished(folder: Path, num: int, steps: int, url: str | None = None) -> None:
    """Exactly ``num`` trials, each finished once, each with its whole curve in the record."""
    trials = trials_of(folder, num, steps, url)
    lives = lives_of(trials)
    assert not [t.number for t in trials if not t.state.is_finished()]
    done = [t for t in trials if t.state is TrialState.COMPLETE]
    assert sorted(t.user_attrs["kltune.trial_number"] for t in done) == list(range(num))
    assert len(lives) == num
    records = read_trials(folder)
    assert [r.number for r in records] == list(range(num))
    for record, life in zip(records, lives, strict=True):
        assert [row["step"] for row in record.steps] == list(range(1, steps + 1)), record.number
        assert record.outcome is not None
        assert record.outcome.value == life[-1].value
        assert record.outcome.attempt == record.attempt == len(life)
        ends = [e["attempt"] for e in record.events if e["event"] == "ended"]
        assert len(ends) == len(set(ends)), (record.number, ends)
