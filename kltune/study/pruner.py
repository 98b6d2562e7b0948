"""A trial and its peers at the same step in, whether the trial is beaten out. Pure but for the reading.

Early gold ranks are often inverted: a fast setting peaks first and falls first. So nothing
is pruned before the warm-up, and only a trial whose gold is lower *and* whose KL is not
lower than its peers': one with low KL may simply be slow. Gold is what the objective makes of
the evaluations so far: under gold_peak a trial that has its peak behind it keeps it, and is not
pruned for what came after.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import optuna
from optuna.trial import TrialState

from kltune.spec.objective import ObjectiveSpec
from kltune.spec.study import PruningSpec
from kltune.spec.trial import KLUnit
from kltune.study.lives import ATTR_ORIGIN
from kltune.trial.objective import EvalPoint, judge_trial
from kltune.trial.outcome import StopReason, Verdict
from kltune.trial.words import KL_UNIT, is_noise

ATTR_EVALS = "kltune.evals"
"""User attribute of an Optuna trial: step -> [gold, KL in the study's kl_unit, gold's s.e.]."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a trial stands at one step."""

    gold: float
    kl: float
    """In the study's ``kl_unit``."""
    gold_se: float


def judge_against_peers(
    own: Standing,
    peers: Sequence[Standing],
    step: int,
    pruning: PruningSpec,
    kl_unit: KLUnit,
    metric: str = "gold_final",
) -> Verdict | None:
    """Prune where gold is below the peers' median by more than its own standard error and KL is not lower.

    The caller sees to the warm-up; too few peers prune nothing. ``metric`` is the objective's, by
    which the standings were judged.
    """
    if not pruning.enabled or len(peers) < pruning.peers:
        return None
    gold, kl = median(p.gold for p in peers), median(p.kl for p in peers)
    if own.gold >= gold - own.gold_se or own.kl < kl:
        return None
    detail = (
        f"{_GOLD_WORDS[metric]} {own.gold:.3f} ± {own.gold_se:.3f} < {gold:.3f}, the median of {len(peers)} trials at "
        f"step {step}, with kl {own.kl:.3g} ≥ their {kl:.3g} {KL_UNIT[kl_unit]}"
    )
    return Verdict(StopReason.PRUNED, detail)


def is_warm(step: int, steps: int, pruning: PruningSpec) -> bool:
    """Whether the trial has used its warm-up share of the steps."""
    return step >= pruning.warmup * steps


_GOLD_WORDS = {
    "gold_final": "gold of the last two evaluations",
    "gold_peak": "best gold so far",
    "gold_mean": "mean gold so far",
}


def as_judged(standings: Mapping[int, Standing], objective: ObjectiveSpec) -> dict[int, Standing]:
    """Standings with gold as the objective sees it at each step; KL stays that of the step.

    gold_peak: the highest gold up to then after step 0 that respects the KL limit, the step's own
    where none does; else what a trial that ended there would be worth (`judge_trial`). gold_mean: the
    area under gold up to then; gold_final: the mean of the last two after step 0.
    """
    limit = math.inf if objective.kl_limit is None else objective.kl_limit
    judged: dict[int, Standing] = {}
    points: list[EvalPoint] = []
    best: Standing | None = None
    for step, standing in sorted(standings.items()):
        points.append(EvalPoint(step, (standing.gold,), standing.kl, standing.kl))
        is_allowed = step > 0 and standing.kl <= limit
        if is_allowed and (best is None or standing.gold > best.gold):
            best = standing
        seen = standing
        if objective.metric != "gold_peak":
            value = judge_trial(points, objective, KLUnit.TOKEN, step, max(step, 1)).value
            seen = Standing(
                standing.gold if value is None else value, standing.kl, standing.gold_se
            )
        elif best is not None:
            seen = Standing(best.gold, standing.kl, best.gold_se)
        judged[step] = seen
    return judged


def standings_at(
    step: int, trials: Iterable[optuna.trial.FrozenTrial], objective: ObjectiveSpec
) -> list[Standing]:
    """Standings at ``step``, as the objective judges them, of trials that are worth comparing with.

    Left out: failed trials, those that were told infeasible, repeats on other seeds, and those
    without a report at that step.
    """
    found = (
        as_judged(standings_of(t.user_attrs), objective).get(step) for t in trials if _is_sound(t)
    )
    return [standing for standing in found if standing is not None]


class Peers:
    """The same as `standings_at`, call after call: a trial that is over is read once."""

    def __init__(self, objective: ObjectiveSpec) -> None:
        self._objective = objective
        self._over: dict[int, list[Standing]] = {}
        """By step."""
        self._read: set[int] = set()
        """Optuna numbers of the trials that are over and read."""

    def standings_at(self, step: int, trials: Iterable[optuna.trial.FrozenTrial]) -> list[Standing]:
        """Standings at ``step`` of the sound ones of ``trials`` and of all that are over."""
        running: list[optuna.trial.FrozenTrial] = []
        for trial in trials:
            if not trial.state.is_finished():
                running.append(trial)
            elif trial.number not in self._read:
                self._read.add(trial.number)
                if _is_sound(trial):
                    judged = as_judged(standings_of(trial.user_attrs), self._objective)
                    for at, standing in judged.items():
                        self._over.setdefault(at, []).append(standing)
        return [*self._over.get(step, ()), *standings_at(step, running, self._objective)]


def standings_of(user_attrs: Mapping[str, Any]) -> dict[int, Standing]:
    """Read what `pack_standings` wrote."""
    rows: Mapping[str, Sequence[float]] = user_attrs.get(ATTR_EVALS, {})
    return {int(step): Standing(*row) for step, row in rows.items()}


def pack_standings(standings: Mapping[int, Standing]) -> dict[str, list[float]]:
    """The user attribute, as plain JSON whatever scalars it was made of."""
    return {
        str(step): [float(s.gold), float(s.kl), float(s.gold_se)] for step, s in standings.items()
    }


def _is_sound(trial: optuna.trial.FrozenTrial) -> bool:
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
    is_repeat = is_noise(str(trial.user_attrs.get(ATTR_ORIGIN)))
    is_held = all(c <= 0 for c in trial.constraints.values())
    return trial.state in states and is_held and not is_repeat
