"""A spec in, who proposes the settings out: how many trials are fixed, Sobol and model-guided."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import optuna

from kltune.metrics.record import RewardScale
from kltune.spec.study import StudySpec
from kltune.study.space import (
    PlannedTrial,
    fixed_trials,
    setting_of,
    sobol_params,
    varying,
    walk,
)

STARTUP_SHARE = 0.4
"""Share of the free trials that are Sobol points, where the spec does not say."""
STARTUP_RANGE = (2, 10)
"""Bounds of that number."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How the budget is divided. The counts add up to ``budget.trials``."""

    fixed: int
    """Baselines, the beta = 0 arm, and the repeats of noise."""
    sobol: int
    """Scrambled Sobol points that spread over the space."""
    guided: int
    """Trials proposed after that, by the model (tpe) or at random (random)."""
    sampler: str
    noise: int = 0
    """Of the fixed ones: repeats on other seeds, for the noise floor."""

    def describe(self) -> str:
        """One line for people."""
        who = "model-guided (TPE)" if self.sampler == "tpe" else "at random"
        total = self.fixed + self.sobol + self.guided
        repeats = f", {self.noise} on other seeds for the noise floor" if self.noise else ""
        return (
            f"{total} trials: {self.fixed} fixed (baselines, beta = 0{repeats}), {self.sobol} Sobol points, "
            f"{self.guided} {who}"
        )


def plan_search(spec: StudySpec) -> SearchPlan:
    """Divide the budget: fixed trials first, then Sobol points, then the sampler.

    With no dimension that varies every free trial repeats the one setting.
    """
    noise = spec.budget.noise_seeds
    fixed = min(len(spec.baselines) + int(spec.search.beta.zero) + noise, spec.budget.trials)
    free = spec.budget.trials - fixed
    if spec.sampler.startup is not None:
        sobol = spec.sampler.startup
    elif spec.sampler.name == "random":
        sobol = 0
    else:
        low, high = STARTUP_RANGE
        sobol = max(low, min(high, int(STARTUP_SHARE * free)))
    if not varying(spec.search):
        sobol = 0
    sobol = min(sobol, free)
    return SearchPlan(fixed, sobol, free - sobol, spec.sampler.name, noise)


def planned_trials(spec: StudySpec, scale: RewardScale | None) -> list[PlannedTrial]:
    """Everything that is known before the start: fixed trials, then Sobol points.

    Raises what `fixed_trials` raises.
    """
    planned = list(fixed_trials(spec, scale))
    for point in sobol_params(spec.search, plan_search(spec).sobol, spec.seed):
        params = walk(spec.search, point.__getitem__)
        planned.append(PlannedTrial("sobol", setting_of(params, spec)))
    return planned


def make_sampler(spec: StudySpec, number: int) -> optuna.samplers.BaseSampler:
    """Who proposes trial ``number``: seeded by the spec's seed and this number alone.

    So what is proposed follows from the seed and from what is known by then, whoever asks: another
    member, or another session.
    """
    seed = int(np.random.SeedSequence([spec.seed % 2**64, number]).generate_state(1)[0])
    plan = plan_search(spec)
    if spec.sampler.name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        # `group` and `multivariate` are marked experimental; the pinned version is tested.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            multivariate=True,
            group=True,
            constant_liar=True,
            # Told trials. Half of the Sobol points will do: with several slots the others still
            # run when the first free proposal is due, and it should not be a random one.
            n_startup_trials=plan.fixed + max(1, plan.sobol // 2),
            seed=seed,
        )
