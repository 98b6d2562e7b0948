"""Whether one coefficient means the same where the proxy's unit is another one: the blocks ``units-*``.

What is asked and compared was written down in study.py before these runs. Shapes: S seeds, C evaluations, N training
steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from experiment import curves
from numpy.typing import NDArray
from recipes_measures import factor, log_kl_along, log_kl_end

from kltune.statistics.arms import at_end, mean_of, stop_place, when_stopped

SCALES = (0.25, 1.0, 4.0)
"""What the proxy is multiplied by."""
BLOCKS = {scale: f"units-{scale:g}" for scale in SCALES}
BUILT_IN = "arms"
"""The block of the published settings, on the task as it ships."""
TYPED = "k1-reward 0.15"
GRPO = "trl-grpo-0.18"
"""A coefficient beside normalised advantages: kltune multiplies it by sigma_R."""
PARTED = 0.01
"""Two runs have parted where their KL on the training prompts differs by more than this share."""

Place = tuple[str, str]
"""A block and an arm of it."""


def relative(scale: float) -> str:
    """The arm whose beta is .15 times ``scale``."""
    return f"k1-reward {0.15 * scale:g}"


def compared(there: set[Place]) -> dict[Place, Place]:
    """Each arm of the block at 1/4 and at 4, and what it is compared with at scale 1, where both are ``there``."""
    found = {}
    for scale in (0.25, 4.0):
        found[BLOCKS[scale], TYPED] = (BLOCKS[1.0], TYPED)
        found[BLOCKS[scale], relative(scale)] = (BLOCKS[1.0], TYPED)
        found[BLOCKS[scale], GRPO] = (BUILT_IN, GRPO)
    return {a: b for a, b in found.items() if a in there and b in there}


def repeated() -> tuple[tuple[Place, Place], ...]:
    """Runs that should be the same: of the wrapped task and of the one that ships, and of what is relative to the spread."""
    low, one, high = (BLOCKS[scale] for scale in SCALES)
    return (
        ((one, TYPED), (BUILT_IN, TYPED)),
        ((low, relative(0.25)), (one, TYPED)),
        ((high, relative(4)), (one, TYPED)),
        ((low, relative(0.25)), (high, relative(4))),
        ((low, GRPO), (BUILT_IN, GRPO)),
        ((high, GRPO), (BUILT_IN, GRPO)),
        ((low, GRPO), (high, GRPO)),
    )


def units(runs: pd.DataFrame, steps: pd.DataFrame, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Spread and betas of each scale, every arm beside scale 1, and which runs repeat; empty without such blocks."""
    blocks = [block for block in BLOCKS.values() if block in set(runs["block"])]
    if not blocks:
        return {}
    runs_of = {
        (block, arm): _Runs(runs, steps, block, arm)
        for block in [*blocks, BUILT_IN]
        for arm in runs.loc[runs["block"] == block, "arm"].unique()
        if block != BUILT_IN or arm in (TYPED, GRPO)
    }
    pairs = compared(set(runs_of))
    number = len(pairs) * len(next(iter(runs_of.values())).measures)
    return {
        "sigma": {block: machine["blocks"][block]["scale"]["sigma"] for block in blocks},
        "comparisons": number,
        "arms": {
            _name(place): {**_facts(place, machine), **one.words()}
            for place, one in runs_of.items()
            if place[0] != BUILT_IN or place[1] == GRPO
        },
        "beside_scale_1": {
            _name(a): {
                name: _interval(name, mine - runs_of[b].measures[name], number)
                for name, mine in runs_of[a].measures.items()
            }
            for a, b in pairs.items()
        },
        "repeats": {
            f"{_name(a)} and {_name(b)}": _repeats(runs_of[a], runs_of[b])
            for a, b in repeated()
            if a in runs_of and b in runs_of
        },
    }


class _Runs:
    """The runs of one arm in one block."""

    def __init__(self, runs: pd.DataFrame, steps: pd.DataFrame, block: str, arm: str) -> None:
        self.gold_SC = curves(runs, "gold", block)[arm]
        self.kl_SC = curves(runs, "kl_seq", block)[arm]
        self.kl_SN = curves(steps, "kl_seq", block)[arm]
        self.evaluated = [int(step) for step in sorted(runs["step"].unique())]
        self.measures: dict[str, NDArray[np.float64]] = {
            "kl_along_times": log_kl_along(self.kl_SN),
            "kl_end_times": log_kl_end(self.kl_SC),
            "gold_end_minus": at_end(self.gold_SC),
            "gold_stopped_minus": when_stopped(self.gold_SC),
        }

    def words(self) -> dict[str, Any]:
        """What these runs reach, each interval alone."""
        own = self.measures
        return {
            "kl_along": factor(mean_of(own["kl_along_times"])),
            "kl_end": factor(mean_of(own["kl_end_times"])),
            "gold_end": asdict(mean_of(own["gold_end_minus"])),
            "gold_stopped": asdict(mean_of(own["gold_stopped_minus"])),
            "stop_step": self.evaluated[stop_place(self.gold_SC)],
        }


def _name(place: Place) -> str:
    block, arm = place
    return f"{arm} at {1 if block == BUILT_IN else block.removeprefix('units-')}" + (
        " (as it ships)" if block == BUILT_IN else ""
    )


def _facts(place: Place, machine: Mapping[str, Any]) -> dict[str, float]:
    """Beta in raw reward per nat, and relative to the proxy's spread within a prompt."""
    block, arm = place
    facts = machine["blocks"][block]
    beta = facts["arms"][arm]["beta"]
    return {"beta": beta, "beta_in_sigma": beta / facts["scale"]["sigma"]}


def _interval(name: str, difference_S: NDArray[np.float64], number: int) -> dict[str, Any]:
    one = mean_of(difference_S, number)
    return factor(one) if name.endswith("_times") else asdict(one)


def _repeats(mine: _Runs, other: _Runs) -> dict[str, Any]:
    """How many runs are the same in every digit of the tables, and how far the others are."""
    same_S = (mine.gold_SC == other.gold_SC).all(axis=1) & (mine.kl_SC == other.kl_SC).all(axis=1)
    same_S &= (mine.kl_SN == other.kl_SN).all(axis=1)
    apart_SN = np.abs(mine.kl_SN - other.kl_SN) > PARTED * np.abs(other.kl_SN)
    # The first step that is apart; one beyond the last where none is.
    first_S = np.where(apart_SN.any(axis=1), apart_SN.argmax(axis=1), apart_SN.shape[1]) + 1
    ends = mine.measures["gold_end_minus"] - other.measures["gold_end_minus"]
    return {
        "runs": len(same_S),
        "same": int(same_S.sum()),
        "parted": int(apart_SN.any(axis=1).sum()),
        "first_step_apart": {
            "earliest": int(first_S.min()),
            "median": float(np.median(first_S)),
        },
        "gold_end_apart": {
            "mean": float(np.abs(ends).mean()),
            "largest": float(np.abs(ends).max()),
        },
    }
