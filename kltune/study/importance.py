"""A study in, how much each searched parameter mattered out, or why that can't be said."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from kltune.errors import EnvironmentMissingError, RunError, StudyError
from kltune.statistics.explained import Drawn, Explained, WhyNot, explain
from kltune.study.reading import reading

_logger = logging.getLogger(__name__)

SMALLEST_NUMBER = 6
"""Completed trials with parameters below which nothing is said: a parabola and a mean take three."""
_WHY_NOT = {
    WhyNot.FEW: ", which are too few",
    WhyNot.CONSTANT: ", where it was always the same",
    WhyNot.ALIASED: ", where it went along with what is named above",
}


@dataclass(frozen=True, slots=True)
class Importance:
    """What the searched parameters explain, over the completed trials that drew parameters."""

    shares: dict[str, float] = field(default_factory=dict[str, float])
    """Of the variance of the value, by parameter that is told from chance, each beyond those before it."""
    unavailable: str | None = None
    """Why nothing is said."""
    num_used: int = 0
    """Trials that it was computed from."""
    num_trials: int = 0
    """All trials that ran, fixed, pruned and failed ones included; attempts count once."""
    parameters: tuple[Explained, ...] = ()
    """Every searched parameter, those told from chance first."""

    def describe(self) -> str:
        """One line for people."""
        used = f"{self.num_used} of {self.num_trials} trials"
        if self.unavailable is not None:
            return f"not available: {self.unavailable} ({used})"
        lines = "; ".join(self.sentences())
        return f"{lines} (from {used}; pruned and fixed ones are left out)"

    def sentences(self) -> tuple[str, ...]:
        """What is said of each parameter, with the trials that it is said from."""
        return tuple(_sentence(parameter) for parameter in self.parameters)


def measure_importance(study_path: Path) -> Importance:
    """Compute the importances of the study in a folder; never raises for want of results."""
    try:
        with reading(study_path) as study:
            return importance_of(study)
    except StudyError as error:
        return Importance(unavailable=str(error))
    except (EnvironmentMissingError, RunError) as error:
        # Reports are passed on: where the server is stays in the log.
        _logger.warning("%s", error)
        return Importance(unavailable="the study's database server can't be used from here")


def importance_of(study: optuna.Study) -> Importance:
    """Compute the importances from completed trials, fixed ones (which drew nothing) left out.

    Not by Optuna's evaluators. PED-ANOVA, its default, compares the best tenth of the trials with all: of
    20 that is two, and what they have in common is chance. fANOVA and the decrease of impurity take only
    parameters that every trial has, and name a first one whether or not any matters.
    """
    trials = study.get_trials(deepcopy=False)
    ended = [t for t in trials if t.state.is_finished() and "kltune.retry_of" not in t.user_attrs]
    used = [t for t in trials if t.state is TrialState.COMPLETE and t.params]
    worth = _worth(used)
    names = sorted({name for t in used for name in t.params})
    why = None
    if len(used) < SMALLEST_NUMBER:
        why = f"needs at least {SMALLEST_NUMBER} completed trials that drew parameters"
    elif len(set(worth)) < 2:
        why = "all completed trials are worth the same"
    elif not any(len({t.params.get(name) for t in used}) > 1 for name in names):
        why = "no parameter differs between completed trials"
    if why is not None:
        return Importance({}, why, num_used=len(used), num_trials=len(ended))
    parameters = explain([_drawn(used, name) for name in names], worth)
    shares = {p.name: p.share for p in parameters if p.is_found and p.share is not None}
    return Importance(shares, None, len(used), len(ended), parameters)


def _worth(trials: Sequence[FrozenTrial]) -> list[float]:
    """Values, with infeasible trials at the bottom: being beyond the limit is no success."""
    values = [t.value if t.value is not None else 0.0 for t in trials]
    beyond = [any(c > 0 for c in t.constraints.values()) for t in trials]
    within = [value for value, is_beyond in zip(values, beyond, strict=True) if not is_beyond]
    lowest = min(within, default=0.0)
    return [lowest if b else value for value, b in zip(values, beyond, strict=True)]


def _drawn(trials: Sequence[FrozenTrial], name: str) -> Drawn:
    """The parameter in the scale it was drawn on."""
    numbers: list[float | None] = []
    for trial in trials:
        value: Any = trial.params.get(name)
        distribution = trial.distributions.get(name)
        if isinstance(distribution, optuna.distributions.CategoricalDistribution):
            return Drawn(name, [str(t.params[name]) if name in t.params else None for t in trials])
        is_log = bool(getattr(distribution, "log", False))
        numbers.append(None if value is None else math.log(value) if is_log else float(value))
    return Drawn(name, numbers)


def _sentence(found: Explained) -> str:
    trials = f"{found.num_used} trial{'s' * (found.num_used != 1)}"
    if found.share is None or found.p is None:
        return f"{found.name}: can't be said from {trials}{_WHY_NOT[found.why_not or WhyNot.FEW]}"
    p = "p < 0.01" if found.p < 0.01 else f"p = {found.p:.2f}"
    if found.is_found:
        return f"{found.name}: explains {100 * found.share:.0f} % of the variance of the value between {trials} ({p})"
    return f"{found.name}: can't be told from chance by {trials} ({p})"
