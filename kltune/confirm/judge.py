"""Gold by seed, setting and prompt in, what it says about the recommended setting out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kltune.confirm.design import Role
from kltune.confirm.result import Against, Judgement, Place
from kltune.statistics.confirmation import (
    Comparison,
    Standing,
    compare_pair,
    confirm,
    stand,
)


def judge(
    gold: str, names: Sequence[str], roles: Sequence[Role], values_SKP: np.ndarray
) -> Judgement:
    """Judge arm 0 of ``values_SKP`` against the others (S seeds, K arms, P prompts).

    The start, if it is there, is the last arm. It is no setting that was trained and scatters less than
    those: it stays out of the pooled variance and of the family of comparisons, and is compared by itself.
    """
    has_start = roles[-1] == "start"
    trained_SKP = values_SKP[:, :-1] if has_start else values_SKP
    found = confirm(trained_SKP)
    places = [_place(k, standing, standing.shrunk) for k, standing in enumerate(found.standings)]
    against = [_against(k, roles[k], c) for k, c in enumerate(found.comparisons, start=1)]
    if has_start:
        last = len(roles) - 1
        places.append(_place(last, stand(values_SKP[:, -1]), None))
        pair = compare_pair(values_SKP[:, 0] - values_SKP[:, -1])
        against.append(_against(last, "start", pair))
    return Judgement(
        gold=gold,
        names=tuple(names),
        places=tuple(places),
        against=tuple(against),
        verdict=found.verdict,
        winner=found.winner,
        least_detectable=found.least_detectable,
        shrunk_share=found.shrunk_share,
        shrunk_method=found.shrunk_method,
    )


def _place(arm: int, standing: Standing, shrunk: float | None) -> Place:
    return Place(
        arm=arm,
        gold=standing.mean,
        low=standing.low,
        high=standing.high,
        seed_sd=standing.seed_sd,
        by_seed=standing.by_seed,
        shrunk=shrunk,
    )


def _against(arm: int, role: Role, found: Comparison) -> Against:
    return Against(
        arm=arm,
        role=role,
        difference=found.difference,
        low=found.low,
        high=found.high,
        p=found.p,
        is_told_apart=found.is_told_apart,
        is_pooled=found.is_pooled,
        seeds_above=found.seeds_above,
    )
