"""A trial that was interrupted has the curve of one that was not: every algorithm, every controller, every rest.

On a CPU in float32 the same numbers to the bit, in another slot and a bank of another size. Beside other
trials matrix products round by the shape of the whole batch, so there it is the same to rounding alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from accelerate import Accelerator

from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.control import ControlSpec
from kltune.spec.trial import TrialSpec
from kltune.trainer.bank import Bank
from kltune.trainer.model import freeze, with_own_forward

BEFORE, AFTER = 4, 5
"""Steps up to the checkpoint, and after it; of 10."""


def bank_of(num_slots: int, control: dict[str, object] | None = None, **trainer: object) -> Bank:
    model = tiny.loaded(own_forward=not trainer.pop("plain", False))
    settings = replace(tiny.settings(**trainer), control=ControlSpec.model_validate(control or {}))
    return Bank(model, tiny.task_data(model), settings, tiny.MODEL, num_slots)


def steps(bank: Bank, count: int, slot: int = 0) -> list[StepMetrics]:
    measured = [m for _ in range(count) for m in bank.train_step()]
    return [m for m in measured if m.slot == slot]


def numbers(metrics: StepMetrics | EvalMetrics) -> dict[str, Any]:
    values = {k: v for k, v in metrics.values.items() if not k.startswith("time/")}
    found = {"step": metrics.step, "kl": metrics.kl_token, "proxy": metrics.proxy, **values}
    if isinstance(metrics, EvalMetrics):
        return found | {
            "gold": metrics.gold_by_prompt,
            "samples": [s.completion for s in metrics.samples],
        }
    return found | {"beta": metrics.beta}


def same(one: StepMetrics | EvalMetrics, two: StepMetrics | EvalMetrics) -> None:
    ours, theirs = numbers(one), numbers(two)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        both_nan = isinstance(value, float) and math.isnan(value) and math.isnan(theirs[name])
        assert both_nan or value == theirs[name], name


ALGORITHMS: dict[str, dict[str, object]] = {
    "grpo": {"algorithm": "grpo"},
    "rloo": {"algorithm": "rloo"},
    "reinforce": {"algorithm": "reinforce"},
    "ppo with a critic": {"algorithm": "ppo", "epochs": 2, "minibatches": 2},
    "moving reference": {"algorithm": "grpo", "reference": {"every": 3, "mixture": 0.5}},
    "reference reset": {"algorithm": "rloo", "reference": {"every": 3}},
    "running scores": {"algorithm": "reinforce", "reward": {"normalize": "running"}},
    "ppo with everything": {
        "algorithm": "ppo",
        "epochs": 2,
        "reference": {"every": 2, "mixture": 0.3},
        "reward": {"normalize": "running"},
    },
    "transformers' own forward": {"algorithm": "grpo", "plain": True},
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_goes_on_to_the_bit(tmp_path: Path, name: str) -> None:
    spec = tiny.trial(seed=3, learning_rate=2e-2)
    whole, other = bank_of(1, **ALGORITHMS[name]), bank_of(3, **ALGORITHMS[name])
    goes_on_to_the_bit(tmp_path, whole, other, spec)


CONTROLLERS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "proportional": ({"controller": "proportional", "target_kl": 0.02, "horizon": 40}, {}),
    "with an average": (
        {"controller": "proportional", "target_kl": 0.02, "horizon": 40},
        {"ema": 0.7, "beta_min": 1e-3, "beta_max": 10.0},
    ),
    "threshold": (
        {"controller": "threshold", "target_kl": 0.02},
        {"threshold": {"every": 3}, "ema": 0.5},
    ),
    "threshold-ppo2017": ({"controller": "threshold-ppo2017", "target_kl": 0.02}, {}),
    "schedule": (
        {"controller": "schedule"},
        {"schedule": [[0, 1.0], [0.3, 0.5], [0.7, 2.0]]},
    ),
    "staged target": (
        {"controller": "proportional", "target_kl": 0.02, "horizon": 40},
        {"targets": [[0, 1.0], [0.3, 2.0], [0.7, 0.5]]},
    ),
    "target that is still being measured": (
        {"controller": "proportional", "horizon": 40},
        {"calibrate": {"share": 0.6}},
    ),
    "target that was measured": (
        {"controller": "proportional", "horizon": 40},
        {"calibrate": {"share": 0.2}, "ema": 0.3},
    ),
}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_every_controller_goes_on_to_the_bit(tmp_path: Path, name: str) -> None:
    fields, control = CONTROLLERS[name]
    spec = tiny.trial(**{"seed": 3, "learning_rate": 2e-2, **fields})
    betas = goes_on_to_the_bit(tmp_path, bank_of(1, control), bank_of(2, control), spec)
    assert len(set(betas)) > 1, "beta must move, or this would show nothing"


def goes_on_to_the_bit(tmp_path: Path, whole: Bank, other: Bank, spec: TrialSpec) -> list[float]:
    """Save ``whole`` half-way, go on in the last slot of ``other``; return the betas of the whole curve."""
    slot = other.num_slots - 1
    whole.admit(0, 7, spec, None)
    betas = [m.beta for m in steps(whole, BEFORE)]
    whole.save_checkpoint(0, tmp_path / "last")
    assert other.admit(slot, 7, spec, tmp_path / "last") == BEFORE
    (judged,), (judged_there,) = whole.evaluate([0]), other.evaluate([slot])
    same(judged, judged_there)
    expected, got = steps(whole, AFTER), steps(other, AFTER, slot)
    for one, two in zip(expected, got, strict=True):
        same(one, two)
    (ended,), (ended_there,) = whole.evaluate([0]), other.evaluate([slot])
    same(ended, ended_there)
    return betas + [m.beta for m in expected]


def test_a_resume_that_only_evaluates_changes_nothing(tmp_path: Path) -> None:
    spec = tiny.trial(seed=3, learning_rate=2e-2)
    whole = bank_of(1, **ALGORITHMS["ppo with everything"])
    whole.admit(0, 7, spec, None)
    steps(whole, BEFORE)
    whole.save_checkpoint(0, tmp_path / "last")
    before = (tmp_path / "last" / "slot.safetensors").read_bytes()
    looked = bank_of(2, **ALGORITHMS["ppo with everything"])
    for _ in range(2):  # interrupted twice without a step between
        looked.admit(1, 7, spec, tmp_path / "last")
        looked.evaluate([1])
        looked.save_checkpoint(1, tmp_path / "last")
        looked.evict(1)
    assert (tmp_path / "last" / "slot.safetensors").read_bytes() == before
    other = bank_of(1, **ALGORITHMS["ppo with everything"])
    other.admit(0, 7, spec, tmp_path / "last")
    for one, two in zip(steps(whole, AFTER), steps(other, AFTER), strict=True):
        same(one, two)


def test_interrupted_at_every_step_it_is_still_the_same_curve(tmp_path: Path) -> None:
    spec = tiny.trial(
        seed=3, learning_rate=2e-2, controller="proportional", target_kl=0.02, horizon=40
    )
    whole = bank_of(1)
    whole.admit(0, 7, spec, None)
    expected = steps(whole, 6)
    got: list[StepMetrics] = []
    bank = bank_of(2)
    for step in range(6):
        slot = step % 2
        bank.admit(slot, 7, spec, tmp_path / "last" if step else None)
        got += steps(bank, 1, slot)
        bank.save_checkpoint(slot, tmp_path / "last")
        bank.evict(slot)
    for one, two in zip(expected, got, strict=True):
        same(one, two)


def test_beside_other_trials_it_goes_on_the_same_to_rounding(tmp_path: Path) -> None:
    spec, beside = tiny.trial(seed=3), tiny.trial(seed=4, beta=0.5)
    whole, full = bank_of(1), bank_of(3)
    whole.admit(0, 7, spec, None)
    steps(whole, BEFORE)
    whole.save_checkpoint(0, tmp_path / "last")
    for slot in (0, 2):
        full.admit(slot, slot, beside, None)
    full.admit(1, 7, spec, tmp_path / "last")
    for one, two in zip(steps(whole, AFTER), steps(full, AFTER, 1), strict=True):
        assert two.step == one.step
        assert two.kl_token == pytest.approx(one.kl_token, rel=1e-3, abs=1e-6)
        assert two.proxy == pytest.approx(one.proxy, rel=1e-3, abs=1e-5)


def test_on_a_bfloat16_base_it_goes_on_to_the_bit(tmp_path: Path) -> None:
    def bank(num_slots: int) -> Bank:
        raw = tiny.llama().to(torch.bfloat16)
        model = with_own_forward(freeze(raw, tiny.tokenizer(), Accelerator(cpu=True)))
        return Bank(model, tiny.task_data(model), tiny.settings(), tiny.MODEL, num_slots)

    whole, other = bank(1), bank(2)
    assert next(whole.parts.loaded.body.parameters()).dtype is torch.bfloat16
    goes_on_to_the_bit(tmp_path, whole, other, tiny.trial(seed=3, learning_rate=2e-2))
    assert whole.parts.stack.flat_KP.dtype is torch.float32


def test_full_fine_tuning_goes_on_to_the_bit(tmp_path: Path) -> None:
    full = tiny.MODEL.model_copy(update={"finetune": "full"})

    def bank() -> Bank:
        model = tiny.loaded(own_forward=True)
        return Bank(model, tiny.task_data(model), tiny.settings(), full, 1)

    goes_on_to_the_bit(tmp_path, bank(), bank(), tiny.trial(seed=3, learning_rate=2e-3))
