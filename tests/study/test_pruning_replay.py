"""The pruning rule on full curves of 40 kitchen trials that were not pruned, in many random orders."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from kltune.spec.objective import ObjectiveSpec
from kltune.spec.study import PruningSpec
from kltune.spec.trial import KLUnit
from kltune.study.pruner import Standing, as_judged, is_warm, judge_against_peers

DATA: dict[str, Any] = json.loads(
    (Path(__file__).parent / "unpruned_curves.json").read_text(encoding="utf-8")
)
CURVES: dict[int, dict[str, Any]] = {curve["trial"]: curve for curve in DATA["trials"]}
STEPS: int = DATA["steps"]
OBJECTIVE = ObjectiveSpec(metric="gold_peak", kl_limit=DATA["kl_limit"])
PRUNING = PruningSpec()
GUARD = 1.0
"""Nats per token at which kitchen's KL guard ends a trial; the curves go on to 3."""
ORDERS = 200

BEST = max(CURVES, key=lambda number: CURVES[number]["value"])
AS_GOOD = [n for n in CURVES if CURVES[n]["value"] > CURVES[BEST]["value"] - 0.08]
"""Within about one standard error (0.08) of the best: any of them may be the best in truth."""


def standings(number: int, objective: ObjectiveSpec) -> dict[int, Standing]:
    curve = CURVES[number]
    rows = zip(curve["step"], curve["gold"], curve["kl_token"], curve["gold_se"], strict=True)
    return as_judged({step: Standing(gold, kl, se) for step, gold, kl, se in rows}, objective)


def replay(
    order: Sequence[int], slots: int, standing: Mapping[int, Mapping[int, Standing]]
) -> dict[int, int]:
    """Trials pruned, with the step: ``slots`` train at once, a free one is refilled at once."""
    waiting, running = list(order), dict[int, int]()
    reached: dict[int, dict[int, Standing]] = {number: {} for number in order}
    pruned: dict[int, int] = {}
    while waiting or running:
        while waiting and len(running) < slots:
            running[waiting.pop(0)] = 0
        for number in list(running):
            step = running[number] = running[number] + 10
            own = reached[number][step] = standing[number][step]
            others = [seen[step] for n, seen in reached.items() if n != number and step in seen]
            if step == STEPS or own.kl > GUARD:
                del running[number]
            elif is_warm(step, STEPS, PRUNING) and judge_against_peers(
                own, others, step, PRUNING, KLUnit.TOKEN, OBJECTIVE.metric
            ):
                pruned[number] = step
                del running[number]
    return pruned


def times_pruned(slots: int, objective: ObjectiveSpec = OBJECTIVE) -> tuple[Counter[int], float]:
    """How often each trial is pruned over all orders, and the share of all steps that is spared."""
    standing = {number: standings(number, objective) for number in CURVES}
    count: Counter[int] = Counter()
    spared = 0
    for seed in range(ORDERS):
        order = list(CURVES)
        random.Random(seed).shuffle(order)
        pruned = replay(order, slots, standing)
        count.update(pruned.keys())
        spared += sum(STEPS - step for step in pruned.values())
    return count, spared / (ORDERS * len(CURVES) * STEPS)


def upper_bound(times: int) -> float:
    """95 % upper limit of a rate seen ``times`` times in ORDERS (Clopper & Pearson)."""
    return float(stats.beta.ppf(0.95, times + 1, ORDERS - times))


def test_the_curves_are_those_of_40_whole_trials() -> None:
    assert len(CURVES) == 40
    assert all(curve["step"] == list(range(0, STEPS + 1, 10)) for curve in CURVES.values())
    assert len(AS_GOOD) == 7


@pytest.mark.parametrize("slots", [2, 8])  # the recorded study ran 2
def test_the_best_trial_is_pruned_in_at_most_5_percent_of_the_orders(slots: int) -> None:
    count, spared = times_pruned(slots)
    for number in AS_GOOD:
        bound = upper_bound(count[number])
        assert bound <= 0.05, (
            f"trial {number} pruned in {count[number]} of {ORDERS} orders, at most {bound:.3f}"
        )
    assert spared > 0.02  # it prunes at all


def test_pruning_by_the_gold_of_the_moment_would_throw_away_trials_as_good_as_the_best() -> None:
    count, _ = times_pruned(2, ObjectiveSpec(metric="gold_final"))
    assert max(count[number] for number in AS_GOOD) > ORDERS / 2
