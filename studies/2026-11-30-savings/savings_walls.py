"""The wall time of a sweep as kltune places its trials, and of the same with one trial at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any


def paces(
    sweeps: Sequence[Mapping[str, Any]], alone: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """How many times as long one trial at a time takes, for the seeds that were swept both ways.

    ``wall_s``: of the whole sweep, start-up and report included. A sweep with trials at once may end other trials
    early than one without, so it is seconds *per step of a trial* that are compared: of the same seeds, and of the
    medians over all sweeps, which one that ran beside other work moves less.
    """
    of_seed = {one["seed"]: one for one in sweeps}
    pairs = [(of_seed[one["seed"]], one) for one in alone]
    packed_S = [_step_s(one) for one in sweeps]
    alone_S = [_step_s(one) for one in alone]
    return {
        "seeds": [one["seed"] for one in alone],
        "packed_step_s": packed_S,
        "alone_step_s": alone_S,
        "packed_wall_s": [one["wall_s"] for one in sweeps],
        "alone_wall_s": [one["wall_s"] for one in alone],
        "same_seed_times_as_fast": [_step_s(single) / _step_s(packed) for packed, single in pairs],
        "median_times_as_fast": median(alone_S) / median(packed_S),
    }


def _step_s(one: Mapping[str, Any]) -> float:
    return float(one["wall_s"]) / float(one["steps"])
