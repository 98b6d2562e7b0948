"""Replays for tests: one of three steps as values, and traced steps of the tiny model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tiny

from kltune.launch.threads import torch_threads
from kltune.metrics.trace import StepTrace
from kltune.replay.compare import compare_trials
from kltune.replay.result import ReplayResult, Traced


def result(loss: float | None = 0.25) -> ReplayResult:
    """A replay of three steps whose second has another loss."""

    def row(step: int, value: float | None) -> dict[str, Any]:
        return {"step": step, "train/loss": value}

    recorded = [row(s, 0.25) for s in (1, 2, 3)]
    replayed = [row(1, 0.25), row(2, loss), row(3, 0.25)]
    evals = [{"step": 3, "eval/gold": 0.5, "eval/gold_se": 0.1}]
    return ReplayResult(
        study="kitchen",
        trial=7,
        setting="k2-loss",
        folder=Path("replays/00007"),
        steps_recorded=3,
        steps_asked=3,
        steps_run=3,
        reason="done",
        detail="ran 3 steps again",
        recorded_end="ran its course of 3 steps",
        comparison=compare_trials((recorded, evals), (replayed, evals)),
        surroundings=("cpus: 2 in the record, 64 now",),
        notes=("guards only warn, since --steps was given",),
        traced=Traced(1, (Path("trace.json"),), "loss = 1", 18, ()),
        gold=(0.5, 0.45, 0.1),
        seconds=1.234,
    )


def traced(
    trainer: Mapping[str, Any] | None = None, step: int = 3, **setting: Any
) -> tuple[StepTrace, dict[str, float]]:
    """A step of the tiny model taken apart, and what the trainer logged for it."""
    with torch_threads(1):
        bank = tiny.bank(1, own_forward=True, **dict(trainer or {}))
        bank.admit(0, 7, tiny.trial(**setting), None)
        for _ in range(step - 1):
            bank.train_step()
        metrics, trace = bank.traced_step(0)
    values = dict(metrics.values)
    return trace, {**values, "kl/exact_token": metrics.kl_token, "kl/exact_seq": metrics.kl_seq}
