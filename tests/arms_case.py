"""Settings x seeds on the fake bank: prompts and scorers are the kitchen's, no model is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML

from kltune.launch import arms_runs
from kltune.launch.arms import Arm, Experiment
from kltune.launch.signals import StopRequest
from kltune.metrics.record import EvalMetrics, RewardScale
from kltune.spec.load import LoadedSpec, load_spec
from kltune.trial.record import TrialRecord, read_trial
from tests.fake_bank import FakeBank

SPEC: dict[str, Any] = {
    "name": "designed",
    "task": "kitchen",
    "model": {"base": "builtin:kitchen-small"},
    "trainer": {"steps": 12, "prompts": 2, "group_size": 4, "learning_rate": 2e-3},
    "search": {"beta": {"log": [1e-3, 1.0]}},
    "evaluate": {"every": 5, "prompts": 16},
    "budget": {"trials": 6, "workers": 1, "slots": 1},
}
ARMS: dict[str, Arm] = {
    "no KL": {"beta": 0.0},
    "some": {"beta": 0.1, "penalty": "k2-loss"},
}
SCALE = RewardScale(sigma=0.5, std=0.6, mean=0.0, num_groups=8, mean_tokens=20.0)


def loaded_spec(folder: Path, *overrides: str) -> LoadedSpec:
    path = folder / "spec.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(SPEC, file)
    return load_spec(path, overrides)


def experiment(
    folder: Path,
    arms: Mapping[str, Arm] = ARMS,
    seeds: tuple[int, ...] = (3, 4),
    overrides: tuple[str, ...] = (),
) -> Experiment:
    """Of the spec above, recorded in ``folder``/out."""
    return Experiment(loaded_spec(folder, *overrides), arms, seeds, folder / "out")


class MeasuringBank(FakeBank):
    """Measures what a trainer's evaluation does beside gold and KL."""

    def evaluate(self, slots: Sequence[int]) -> tuple[EvalMetrics, ...]:
        more = {"eval/entropy_token": 1.5, "eval/completion_mean": 12.25}
        return tuple(dataclasses.replace(m, values=more) for m in super().evaluate(slots))


class Fakes:
    """Stand in for model and bank; what was asked of them."""

    def __init__(self) -> None:
        self.loads: list[Path | None] = []
        """Folder of each load of the model."""
        self.bank: FakeBank = MeasuringBank(num_slots=2)
        self.inside: Callable[[], None] = lambda: None
        """Called when the bank is there."""

    def load(self, _spec: object, _inputs: object, folder: Path | None) -> SimpleNamespace:
        self.loads.append(folder)
        loaded = SimpleNamespace(device_facts=lambda: {"type": "fake"})
        return SimpleNamespace(loaded=loaded, data=SimpleNamespace(proxy=None, gold=None, golds={}))

    @contextmanager
    def place(self, _site: object, *, is_kept: bool) -> Generator[tuple[FakeBank, None]]:
        assert not is_kept
        self.inside()
        yield self.bank, None


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    made = Fakes()
    monkeypatch.setattr(arms_runs, "load_ground", made.load)
    monkeypatch.setattr(arms_runs, "reference_scale", lambda *_: dataclasses.replace(SCALE))
    monkeypatch.setattr(arms_runs, "placed_bank", made.place)
    return made


def never() -> StopRequest:
    return StopRequest(None, lambda _reason: None)


def runs_of(folder: Path) -> list[TrialRecord]:
    return [read_trial(path) for path in sorted((folder / "out" / "runs").iterdir())]


def curves_of(folder: Path) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """What was recorded, without times and numbers of runs and attempts."""
    return {
        (r.origin, r.setting.seed): [
            *(("step", row["step"], row["kl/exact_seq"], row["ctrl/beta"]) for row in r.steps),
            *(("eval", row["step"], row["eval/gold"], row["eval/kl_seq"]) for row in r.evals),
        ]
        for r in runs_of(folder)
    }
