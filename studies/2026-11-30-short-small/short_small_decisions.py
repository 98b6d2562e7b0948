"""What choosing a setting by an early look, or by one at another model, means for whole runs of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
from short_small_looks import (
    DRAWS,
    Estimate,
    Final,
    Ints,
    Looked,
    all_looks,
    decide,
    rank_on_other_seeds,
    redrawn_seeds,
    regret,
    with_error,
)
from short_small_measures import GOALS, MEASURES, Curves, Floats, judged

SHARES = (0.25, 0.5, 1.0)
"""Of the steps, at which the betas are judged."""
LOOK_SEEDS = (1, 2, 4, 7)
"""How many seeds a look has; one more is left to judge it on."""
MAIN_LOOK = 4
"""The number that the tables show first: of seven, eight seeds leave one draw only."""


def decisions(
    looked: Curves,
    final: Curves,
    steps: Sequence[int],
    cost: float,
    look_seeds: Sequence[int] = LOOK_SEEDS,
    draws: int = DRAWS,
) -> dict[str, dict[str, Any]]:
    """By share and goal: what choosing by a look at ``looked`` means for whole runs of ``final``.

    Both hold the same seeds in the same order. ``cost``: of a whole run of the one, in whole runs of the other.
    ``look_seeds``: those that leave no seed to be judged on are left out. ``draws``: of the seeds, for the
    intervals.
    """
    names = list(final)
    seen_KSC = np.array([looked[name] for name in names])
    num_seeds = seen_KSC.shape[1]
    whole = _whole(final)
    draws_DS = redrawn_seeds(num_seeds, draws)
    contenders = _contenders(whole, names)
    evals = {share: _num_evals(steps, share) for share in SHARES}
    found: dict[str, dict[str, Any]] = {}
    for share, goal in product(SHARES, GOALS):
        cut_KSC = seen_KSC[:, :, : evals[share]]
        own = found.setdefault(f"{share:g}", {"cost": cost * share})
        own[goal] = {
            "all_choose": _chosen_by_all(cut_KSC, goal, names),
            **_ranks(cut_KSC, whole, goal, draws_DS),
            "seeds": {},
        }
    gain_D: dict[tuple[float, str, int], Floats] = {}
    for num in (one for one in look_seeds if one < num_seeds):
        looks = all_looks(seen_KSC, num, draws_DS)
        for share, goal in product(SHARES, GOALS):
            told = decide(looks, evals[share], whole, goal)
            gain_D[share, goal, num] = told.gain_D
            found[f"{share:g}"][goal]["seeds"][str(num)] = {
                "cost": num * cost * share,
                **_as_words(told, names, contenders, steps),
            }
    for share, goal, num in gain_D:
        quarters = gain_D.get((SHARES[0], goal, MAIN_LOOK))
        if quarters is not None and share > SHARES[0] and num * share == MAIN_LOOK * SHARES[0]:
            less_D = gain_D[share, goal, num] - quarters
            own = found[f"{share:g}"][goal]["seeds"][str(num)]
            own["minus_four_quarters"] = asdict(with_error(less_D, num_seeds))
    return found


def constants(final: Curves) -> dict[str, dict[str, Any]]:
    """By goal: what is lost without a look, by always typing one setting, by one at random, by one but for the largest.

    For ``look_stop`` a constant is run to its last step, since without a look no stop is known.
    """
    whole = _whole(final)
    draws_DS = redrawn_seeds(whole.end_KS.shape[1])
    found: dict[str, dict[str, Any]] = {}
    for goal in GOALS:
        best_KS = whole.end_KS if goal == "at_end" else whole.stopped_KS
        typed_KS = whole.stopped_KS if goal == "stopped" else whole.end_KS
        worth = dict(zip(final, typed_KS, strict=True))
        worth["random"] = typed_KS.mean(axis=0)
        worth["random_without_largest"] = typed_KS[:-1].mean(axis=0)
        found[goal] = {
            name: asdict(_lost(best_KS, worth_S, draws_DS)) for name, worth_S in worth.items()
        }
    return found


def best_setting(final: Curves) -> dict[str, str]:
    """By measure: the setting with the highest mean over all seeds."""
    return {
        measure: max(final, key=lambda name: float(values[name].mean()))
        for measure, values in ((one, judged(final, one)) for one in MEASURES)
    }


def _whole(final: Curves) -> Final:
    stopped, end = (np.array(list(judged(final, one).values())) for one in ("stopped", "at_end"))
    return Final(stopped, end, np.array(list(final.values())))


def _ranks(cut_KSC: Floats, whole: Final, goal: str, draws_DS: Ints) -> dict[str, Any]:
    if goal == "look_stop":
        return {}
    late_KS = whole.end_KS if goal == "at_end" else whole.stopped_KS
    found = {
        key: rank_on_other_seeds(cut_KSC[arms], late_KS[arms], goal, draws_DS)
        for key, arms in (("rank", slice(None)), ("rank_without_largest", slice(-1)))
    }
    return {key: asdict(rank) for key, rank in found.items() if rank is not None}


def _as_words(
    told: Looked, names: Sequence[str], contenders: Sequence[str], steps: Sequence[int]
) -> dict[str, Any]:
    always = dict(zip(names, told.minus_always, strict=True))
    found: dict[str, Any] = {
        "lost": asdict(told.lost),
        "minus_always": {name: asdict(always[name]) for name in contenders},
        "minus_random": asdict(told.minus_random),
        "minus_random_without_largest": asdict(told.minus_random_without_largest),
        "chosen": _positive(names, told.chosen_K),
        "redrawn": _positive(names, told.redrawn_K),
    }
    if told.places_C.any():
        found["stop_costs"] = asdict(told.stop_costs)
        found["stop_steps"] = _positive([str(int(step)) for step in steps], told.places_C)
        found["mean_stop_step"] = float(np.dot(told.places_C, steps[: len(told.places_C)]))
    return found


def _lost(best_KS: Floats, worth_S: Floats, draws_DS: Ints) -> Estimate:
    off_KD = (best_KS - worth_S)[:, draws_DS].mean(axis=2)
    return regret([with_error(one, draws_DS.shape[1]) for one in off_KD])


def _positive(names: Sequence[str], shares: Floats) -> dict[str, float]:
    return {name: float(share) for name, share in zip(names, shares, strict=False) if share > 0}


def _contenders(whole: Final, names: Sequence[str]) -> list[str]:
    """The two settings whose whole runs are best, stopped; in the order of ``names``."""
    best = np.argsort(-whole.stopped_KS.mean(axis=1))[:2]
    return [names[k] for k in sorted(best)]


def _chosen_by_all(cut_KSC: Floats, goal: str, names: Sequence[str]) -> str:
    means_KC = cut_KSC.mean(axis=1)
    if goal == "at_end":
        return names[int(means_KC[:, -2:].mean(axis=1).argmax())]
    return names[int(means_KC[:, 1:].max(axis=1).argmax())]


def _num_evals(steps: Sequence[int], share: float) -> int:
    """Evaluations up to this share of the steps."""
    return sum(step <= share * steps[-1] for step in steps)
