"""A trial and its peers at the same step in, whether the trial is beaten out. Pure but for the reading.

Early gold ranks are often inverted: a fast setting peaks first and falls first. So nothing
is pruned before the warm-up, and only a trial whose gold is lower *and* whose KL is not
lower than its peers': one with low KL may simply be slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import optuna
from optuna.trial import TrialState

from kltune.spec.study import PruningSpec
from kltune.spec.trial import KLUnit
from kltune.trial.outcome import StopReason, Verdict
from kltune.trial.words import KL_UNIT

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
    own: Standing, peers: Sequence[Standing], step: int, pruning: PruningSpec, kl_unit: KLUnit
) -> Verdict | None:
    """Prune where gold is below the peers' median by more than its own standard error and KL is not lower.

    The caller sees to the warm-up; too few peers prune nothing.
    """
    if not pruning.enabled or len(peers) < pruning.peers:
        return None
    gold, kl = median(p.gold for p in peers), median(p.kl for p in peers)
    if own.gold >= gold - own.gold_se or own.kl < kl:
        return None
    detail = (
        f"gold {own.gold:.3f} ± {own.gold_se:.3f} < {gold:.3f}, the median of {len(peers)} trials at "
        f"step {step}, with kl {own.kl:.3g} ≥ their {kl:.3g} {KL_UNIT[kl_unit]}"
    )
    return Verdict(StopReason.PRUNED, detail)


def is_warm(step: int, steps: int, pruning: PruningSpec) -> bool:
    """Whether the trial has used its warm-up share of the steps."""
    return step >= pruning.warmup * steps


def standings_at(step: int, trials: Iterable[optuna.trial.FrozenTrial]) -> list[Standing]:
    """Standings at ``step`` of trials that are worth comparing with.

    Left out: failed trials, those that were told infeasible, and those without a report at
    that step.
    """
    found = (standings_of(t.user_attrs).get(step) for t in trials if _is_sound(t))
    return [standing for standing in found if standing is not None]


class Peers:
    """The same as `standings_at`, call after call: a trial that is over is read once."""

    def __init__(self) -> None:
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
                    for at, standing in standings_of(trial.user_attrs).items():
                        self._over.setdefault(at, []).append(standing)
        return [*self._over.get(step, ()), *standings_at(step, running)]


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
    return trial.state in states and all(c <= 0 for c in trial.constraints.values())
