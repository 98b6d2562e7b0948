"""Searches of the fake bank in a folder, and what they left there: what the tests of the loop run on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import optuna

from kltune.guard.alarm import Alarm
from kltune.metrics.record import EvalMetrics, RewardScale, StepMetrics
from kltune.spec.study import StudySpec
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.observer import Admitted
from kltune.study.search_end import SearchEnd
from kltune.study.space import fixed_trials
from kltune.study.storage import open_study
from kltune.trial.outcome import TrialOutcome
from kltune.trial.record import TrialRecord, read_trials
from tests.fake_bank import FakeBank

SCALE = RewardScale(sigma=0.5, std=0.5, mean=0.0, num_groups=8, mean_tokens=20.0)
FIXED_BETA = {"search": {"beta": {"log": [0.001, 0.01]}}}
"""A search in which every trial reaches about 0.9 to 1 nats per token."""


def ledger_of(path: Path, spec: StudySpec) -> Ledger:
    return Ledger(open_study(path, spec), fixed_trials(spec, SCALE))


def search(path: Path, spec: StudySpec, bank: FakeBank | None = None, **how) -> SearchEnd:
    return run_search(bank or FakeBank(), ledger_of(path, spec), SCALE.sigma, **how)


def optuna_trials(path: Path, spec: StudySpec) -> list[optuna.trial.FrozenTrial]:
    return open_study(path, spec).optuna_study.get_trials()


def ended(path: Path) -> dict[int, TrialOutcome]:
    return {r.number: r.outcome for r in read_trials(path) if r.outcome is not None}


class Watcher:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.alarms: list[tuple[int, Alarm]] = []
        self.outcomes: list[TrialOutcome] = []

    def admitted(self, event: Admitted) -> None:
        assert (event.folder / "config.json").exists()
        self.events.append(f"{event.trial_number} admitted at {event.step}")

    def stepped(self, metrics: StepMetrics) -> None:
        self.events.append(f"{metrics.trial_number} stepped {metrics.step}")

    def evaluated(self, metrics: EvalMetrics) -> None:
        self.events.append(f"{metrics.trial_number} evaluated {metrics.step}")

    def warned(self, trial_number: int, alarm: Alarm) -> None:
        self.alarms.append((trial_number, alarm))
        self.events.append(f"{trial_number} warned {alarm.verdict.reason}")

    def ended(self, outcome: TrialOutcome) -> None:
        self.outcomes.append(outcome)
        self.events.append(f"{outcome.trial_number} ended {outcome.verdict.reason}")


def outcome_of(record: TrialRecord) -> TrialOutcome:
    assert record.outcome is not None
    return record.outcome


def stop_after(calls: int) -> Callable[[], str | None]:
    left = [calls]

    def should_stop() -> str | None:
        left[0] -= 1
        return "stopped by a signal (SIGTERM)" if left[0] < 0 else None

    return should_stop
