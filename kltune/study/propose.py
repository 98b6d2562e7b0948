"""What is known of a study in, the next setting of its sampler out: no storage is asked or written.

The sampler is made anew for each proposal and sees the trials by their numbers, each one once, by its
latest attempt. So a proposal follows from the spec's seed, the trial's number and the history: not from
who asks, or how often the study was interrupted.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.study.lives import Life, is_interrupted
from kltune.study.sampler import make_sampler
from kltune.study.space import suggest


@dataclass(frozen=True, slots=True)
class Draft:
    """An attempt that is to be made."""

    origin: str
    setting: TrialSpec
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """As Optuna keeps them; empty for a comparison arm."""
    distributions: Mapping[str, BaseDistribution] = field(
        default_factory=dict[str, BaseDistribution]
    )


def propose(
    spec: StudySpec, lives: Sequence[Life], number: int, given: Mapping[str, Any] | None = None
) -> Draft:
    """Draw the setting of trial ``number`` after ``lives``, those trials left out that have that number.

    ``given``: parameters that are not to be drawn (a Sobol point, or what someone asked for). The origin
    is ``tpe`` only where its model had told trials to learn from, else ``random``.
    """
    told = [_as_known(life[-1], at) for at, life in enumerate(lives) if at != number]
    study = optuna.create_study(
        storage=_Known([trial for trial in told if trial is not None]),
        direction="maximize",
        sampler=make_sampler(spec, number),
        pruner=optuna.pruners.NopPruner(),
    )
    if given:
        study.enqueue_trial(dict(given))
    trial = study.ask()
    setting = suggest(trial, spec)
    is_guided = spec.sampler.name == "tpe" and bool(trial.relative_params)
    return Draft(
        "tpe" if is_guided else "random", setting, dict(trial.params), dict(trial.distributions)
    )


class _Known(optuna.storages.InMemoryStorage):
    """Trials that are known, and the one that is asked for. They are shown, never copied or changed."""

    def __init__(self, told: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._told = told

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        own = super().get_all_trials(study_id, deepcopy=deepcopy, states=states)
        return [*(t for t in self._told if states is None or t.state in states), *own]


def _as_known(trial: FrozenTrial, number: int) -> FrozenTrial | None:
    """The trial under its number for life, from 1 (0 is the one that is asked for); none where it was given up.

    One whose next attempt is due counts as running: it would be, had nothing interrupted it.
    """
    is_cut = trial.state is TrialState.FAIL and is_interrupted(trial)
    if trial.state in (TrialState.FAIL, TrialState.WAITING) and not is_cut:
        return None
    known = copy.copy(trial)
    known.number = number + 1
    if is_cut:
        known.state = TrialState.RUNNING
    return known
