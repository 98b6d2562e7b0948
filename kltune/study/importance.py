"""A study in, how much each searched parameter mattered out, or why that can't be said."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from kltune.errors import StudyError
from kltune.study.storage import reading

SMALLEST_NUMBER = 4
"""Completed trials with parameters below which no importance is given."""


@dataclass(frozen=True, slots=True)
class Importance:
    """Shares that add up to 1, by PED-ANOVA, over the completed trials that drew parameters."""

    shares: dict[str, float] = field(default_factory=dict[str, float])
    """Highest first; empty where it is not available."""
    unavailable: str | None = None
    """Why there is none."""
    num_used: int = 0
    """Trials that it was computed from."""
    num_trials: int = 0
    """All trials that ran, fixed, pruned and failed ones included; attempts count once."""

    def describe(self) -> str:
        """One line for people."""
        used = f"{self.num_used} of {self.num_trials} trials"
        if self.unavailable is not None:
            return f"not available: {self.unavailable} ({used})"
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return f"{shares} (from {used}; pruned and fixed ones are left out)"


def measure_importance(study_path: Path) -> Importance:
    """Compute the importances of the study in a folder; never raises for want of results."""
    try:
        with reading(study_path) as study:
            return importance_of(study)
    except StudyError as error:
        return Importance(unavailable=str(error))


def importance_of(study: optuna.Study) -> Importance:
    """Compute the importances from completed trials, fixed ones (which drew nothing) left out.

    Source: PED-ANOVA (2304.10255) in its conditional form, as in Optuna 5.
    """
    trials = study.get_trials(deepcopy=False)
    ended = [t for t in trials if t.state.is_finished() and "kltune.retry_of" not in t.user_attrs]
    used = [t for t in trials if t.state is TrialState.COMPLETE and t.params]
    worth = _worth(used)
    names = {name for t in used for name in t.params}
    shares: dict[str, float] = {}
    why = None
    if len(used) < SMALLEST_NUMBER:
        why = f"needs at least {SMALLEST_NUMBER} completed trials that drew parameters"
    elif len(set(worth)) < 2:
        why = "all completed trials are worth the same"
    elif not any(len({t.params.get(name) for t in used}) > 1 for name in names):
        why = "no parameter differs between completed trials"
    else:
        shares = _shares(used, worth)
        if len(shares) > 1 and len(set(shares.values())) == 1:
            shares, why = {}, "the completed trials don't tell the parameters apart"
    return Importance(shares, why, num_used=len(used), num_trials=len(ended))


def _worth(trials: Sequence[FrozenTrial]) -> list[float]:
    """Values, with infeasible trials at the bottom: being beyond the limit is no success."""
    values = [t.value if t.value is not None else 0.0 for t in trials]
    lowest = min(values, default=0.0)
    return [
        lowest if any(c > 0 for c in t.constraints.values()) else value
        for t, value in zip(trials, values, strict=True)
    ]


def _shares(trials: Sequence[FrozenTrial], worth: Sequence[float]) -> dict[str, float]:
    drawn = optuna.create_study(direction="maximize")
    drawn.add_trials(
        optuna.trial.create_trial(params=t.params, distributions=t.distributions, value=value)
        for t, value in zip(trials, worth, strict=True)
    )
    with warnings.catch_warnings():
        # Optuna warns where a quantile selects too few trials and gives equal shares: handled above.
        warnings.simplefilter("ignore")
        shares = optuna.importance.get_param_importances(drawn)
    return {name: float(share) for name, share in shares.items() if math.isfinite(share)}
