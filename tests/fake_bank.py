"""A TrialBank without a model: curves that follow from the setting, checkpoints as JSON. No torch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kltune.metrics.record import EvalMetrics, EvalSample, OtherGold, StepMetrics
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.trainer.protocol import Ahead
from kltune.trial.disk import writing

KL_AT_END = 1.0
"""Nats per token that beta = 0 reaches at the last step."""
TOKENS = 10


@dataclass
class FakeSlot:
    trial_number: int
    spec: TrialSpec
    step: int


class FakeBank:
    """K slots. ``on_step(trial_number, step)`` is called first and may raise what a trainer raises.

    KL grows with the steps and falls with beta; gold rises with KL, peaks at 0.25 nats per
    token and falls; so the best beta lies in the middle. ``gold_of`` replaces gold; ``others_of``
    gives further golds by name, ``values_of`` further metrics of a step.
    """

    def __init__(
        self,
        num_slots: int = 2,
        steps: int = 20,
        prompts: int = 16,
        on_step: Callable[[int, int], None] | None = None,
        on_evaluate: Callable[[int, int], None] | None = None,
        gold_of: Callable[[TrialSpec, int], float] | None = None,
        others_of: Callable[[TrialSpec, int], Mapping[str, float]] | None = None,
        values_of: Callable[[TrialSpec, int], Mapping[str, float]] | None = None,
    ) -> None:
        self._slots: dict[int, FakeSlot] = {}
        self._open = set(range(num_slots))
        self._steps = steps
        self._prompts = prompts
        self._on_step = on_step or (lambda number, step: None)
        self._on_evaluate = on_evaluate or (lambda number, step: None)
        self._gold_of = gold_of
        self._others_of = others_of or (lambda spec, step: {})
        self._values_of = values_of or (lambda spec, step: {})
        self.nan_at: dict[int, int] = {}
        """Step at which a trial's numbers stop being finite."""
        self.steps_done: dict[int, int] = {}
        """Steps trained per trial, over all attempts."""
        self.occupancy: list[int] = []
        """Slots in use at each step."""
        self.admissions: list[tuple[int, Path | None]] = []
        """Trial number and checkpoint of every admission."""
        self.noted: dict[str, object] = {}
        """Written into each checkpoint."""
        self.foreseen: list[dict[int, Ahead]] = []
        """What was said before each step."""

    @property
    def num_slots(self) -> int:
        return len(self._open)

    def free_slots(self) -> tuple[int, ...]:
        return tuple(sorted(self._open - self._slots.keys()))

    def admit(self, slot: int, trial_number: int, spec: TrialSpec, resume_from: Path | None) -> int:
        assert slot in self.free_slots()
        step = 0
        if resume_from is not None:
            saved = json.loads((resume_from / "slot.json").read_text())
            assert saved["setting"] == spec.model_dump(mode="json")
            step = saved["step"]
        self.admissions.append((trial_number, resume_from))
        self._slots[slot] = FakeSlot(trial_number, spec, step)
        return step

    def foresee(self, plan: Mapping[int, Ahead]) -> None:
        self.foreseen.append(dict(plan))

    def catch_up(self) -> tuple[StepMetrics, ...]:
        return ()

    def train_step(self) -> tuple[StepMetrics, ...]:
        self.occupancy.append(len(self._slots))
        for held in self._slots.values():
            self._on_step(held.trial_number, held.step + 1)
        return tuple(self._train(slot, held) for slot, held in self._slots.items())

    def evaluate(self, slots: Sequence[int]) -> tuple[EvalMetrics, ...]:
        for slot in slots:
            self._on_evaluate(self._slots[slot].trial_number, self._slots[slot].step)
        return tuple(self._judge(slot, self._slots[slot]) for slot in slots)

    def save_checkpoint(self, slot: int, folder: Path) -> None:
        held = self._slots[slot]
        saved = {
            "setting": held.spec.model_dump(mode="json"),
            "step": held.step,
            **self.noted,
        }
        _write(folder / "slot.json", json.dumps(saved))

    def save_adapter(self, slot: int, folder: Path) -> None:
        _write(folder / "adapter.json", json.dumps({"step": self._slots[slot].step}))

    def evict(self, slot: int) -> None:
        del self._slots[slot]

    def shrink(self, slot: int) -> None:
        assert slot in self.free_slots()
        self._open.discard(slot)

    def _train(self, slot: int, held: FakeSlot) -> StepMetrics:
        held.step += 1
        number = held.trial_number
        self.steps_done[number] = self.steps_done.get(number, 0) + 1
        is_finite = held.step != self.nan_at.get(number)
        kl = kl_at(held.spec, held.step - 1, self._steps) if is_finite else math.nan
        return StepMetrics(
            slot=slot,
            trial_number=number,
            step=held.step,
            kl_token=kl,
            kl_seq=kl * TOKENS,
            proxy=math.sqrt(kl) if is_finite else math.nan,
            beta=held.spec.beta,
            tokens=8 * TOKENS,
            is_finite=is_finite,
            values={
                "train/loss": 0.1 if is_finite else math.nan,
                **self._values_of(held.spec, held.step),
            },
        )

    def _judge(self, slot: int, held: FakeSlot) -> EvalMetrics:
        kl = kl_at(held.spec, held.step, self._steps)
        gold = gold_at(kl) if self._gold_of is None else self._gold_of(held.spec, held.step)
        by_prompt = tuple(
            gold + Random(f"{held.spec.seed}/{prompt}").gauss(0, 0.05)
            for prompt in range(self._prompts)
        )
        mean = sum(by_prompt) / len(by_prompt)
        others = self._others_of(held.spec, held.step)
        sample = EvalSample(
            "p0", "How long?", "Ten minutes.", gold, kl, kl * TOKENS, TOKENS, True, golds=others
        )
        return EvalMetrics(
            slot=slot,
            trial_number=held.trial_number,
            step=held.step,
            gold=mean,
            gold_se=0.0125,
            proxy=math.sqrt(kl),
            proxy_se=0.01,
            kl_token=kl,
            kl_seq=kl * TOKENS,
            gold_by_prompt=by_prompt,
            proxy_by_prompt=tuple(math.sqrt(kl) for _ in by_prompt),
            values={},
            samples=(sample,),
            others={n: OtherGold(g, 0.0, (g,) * self._prompts) for n, g in others.items()},
        )


def kl_at(spec: TrialSpec, step: int, steps: int) -> float:
    """Nats per token after ``step`` steps: linear in steps, less with more beta."""
    return KL_AT_END * step / steps / (1 + 10 * spec.beta)


def gold_at(kl: float) -> float:
    """Highest, 1, at 0.25 nats per token."""
    return 4 * math.sqrt(kl) - 4 * kl


QUIET: Mapping[str, object] = dict.fromkeys(
    (
        "jump",
        "negative_kl",
        "stalled",
        "pseudo_explosion",
        "gold_drop",
        "entropy",
        "repetition",
        "length",
        "truncation",
        "local_kl",
        "proxy_spread",
    ),
    "off",
)
"""Guards that would see something in these simple curves."""


def small_spec(*, guards: Mapping[str, object] | None = None, **changes: object) -> StudySpec:
    """A spec that is valid and quick; ``changes`` replace whole sections, guards that are not named are off."""
    spec: dict[str, object] = {
        "name": "small",
        "task": "kitchen",
        "model": {"base": "builtin:kitchen"},
        "trainer": {"steps": 20},
        "search": {
            "beta": {"log": [1e-3, 1.0]},
            "penalty": {"choice": ["k1-reward", "k2-loss"]},
            "controller": {"choice": ["fixed", "proportional"]},
            "target_kl": {"log": [0.005, 0.2], "when": {"controller": "proportional"}},
            "horizon": {"log": [64, 6400], "when": {"controller": "proportional"}},
        },
        "evaluate": {"every": 5, "prompts": 16},
        "budget": {"trials": 6},
        "pruning": {"enabled": False},
        "guards": {**QUIET, **(guards or {})},
    }
    return StudySpec.model_validate({**spec, **changes})


def _write(path: Path, text: str) -> None:
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(text)
        scratch.replace(path)
