"""The search space in, settings out: Optuna's suggestions, Sobol points, and fixed trials.

Parameters are drawn in one order, parents of conditions first; a parameter whose condition
does not hold is not drawn. At beta = 0 neither penalty nor controller is drawn, and target
and horizon only where the controller uses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import optuna
from scipy.stats import qmc

from kltune import units
from kltune.errors import RunError
from kltune.metrics.record import RewardScale
from kltune.spec.baseline import BaselineSpec, setting
from kltune.spec.recipes import Recipe
from kltune.spec.search import Dimension, SearchSpec, Value
from kltune.spec.study import StudySpec
from kltune.spec.trial import BetaUnit, ControllerKind, KLUnit, TrialSpec
from kltune.study.written import NEEDS_SCALE, written_setting
from kltune.trial.words import NOISE

Params = dict[str, Value]

_WITH_KL = ("penalty", "controller", "target_kl", "horizon")


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A trial that is known before the search starts."""

    origin: str
    """``baseline:NAME``, ``zero``, ``noise:SEED`` or ``sobol``."""
    setting: TrialSpec


def suggest(optuna_trial: optuna.Trial, spec: StudySpec) -> TrialSpec:
    """Draw one setting through Optuna."""
    dimensions = spec.search.dimensions()
    params = walk(spec.search, lambda name: _suggest(optuna_trial, name, dimensions[name]))
    return setting_of(params, spec)


def varying(search: SearchSpec) -> list[str]:
    """Dimensions that can take more than one value, in the order in which they are drawn."""
    dimensions = search.dimensions()
    return [name for name in drawing_order(search) if len(dimensions[name].values()) != 1]


def drawing_order(search: SearchSpec) -> list[str]:
    """All given dimensions, those that conditions refer to first."""
    waiting = search.dimensions()
    order: list[str] = []
    while waiting:
        ready = [name for name, dim in waiting.items() if not set(dim.when) & set(waiting)]
        assert ready, "the spec refuses conditions that go round in a circle"
        order += ready
        waiting = {name: dim for name, dim in waiting.items() if name not in ready}
    return order


def walk(search: SearchSpec, draw: Callable[[str], Value]) -> Params:
    """Give every active dimension its constant or what ``draw`` says for its name."""
    dimensions = search.dimensions()
    params: Params = {}
    for name in drawing_order(search):
        if not _is_active(name, dimensions[name], params):
            continue
        values = dimensions[name].values()
        params[name] = values[0] if len(values) == 1 else draw(name)
    return params


def setting_of(params: Mapping[str, Value], spec: StudySpec) -> TrialSpec:
    """Complete drawn parameters to a setting."""
    given = {"learning_rate": spec.trainer.learning_rate, "seed": spec.seed, **params}
    return TrialSpec.model_validate(given)


def sobol_params(search: SearchSpec, num: int, seed: int) -> list[Params]:
    """The first ``num`` scrambled Sobol points of the space, inactive dimensions left out.

    Only what varies is in a point. A longer call starts with the same points.
    """
    names = varying(search)
    if num <= 0 or not names:
        return []
    cube = qmc.Sobol(len(names), scramble=True, rng=seed)
    points = cube.random_base2(max(0, math.ceil(math.log2(num))))[:num]
    dimensions = search.dimensions()
    drawn: list[Params] = []
    for point in points:
        share = dict(zip(names, (float(x) for x in point), strict=True))
        params = walk(search, lambda name, at=share: _at_share(dimensions[name], at[name]))
        drawn.append({name: value for name, value in params.items() if name in share})
    return drawn


def fixed_trials(spec: StudySpec, scale: RewardScale | None) -> tuple[PlannedTrial, ...]:
    """Baselines in their order, the beta = 0 arm, then the repeats that measure the noise floor.

    Recipes are converted to the study's units with ``scale``, the proxy under the reference;
    it may be none where nothing needs converting. Raises `RunError` where the scale is
    missing or can't be used.
    """
    fixed = [
        PlannedTrial(f"baseline:{setting(one).name}", baseline_setting(setting(one), spec, scale))
        for one in spec.baselines
    ]
    if spec.search.beta.zero:
        fixed.append(PlannedTrial("zero", setting_of({"beta": 0.0, **_learning_rate(spec)}, spec)))
    return (*fixed, *_repeats(spec, fixed))


def _repeats(spec: StudySpec, arms: Sequence[PlannedTrial]) -> list[PlannedTrial]:
    """The beta = 0 arm, or else the first baseline, on ``budget.noise_seeds`` seeds of their own."""
    repeated = next((arm for arm in arms if arm.origin == "zero"), arms[0] if arms else None)
    if repeated is None:
        return []
    seeds = ((spec.seed + more) % 2**63 for more in range(1, spec.budget.noise_seeds + 1))
    return [
        PlannedTrial(f"{NOISE}{seed}", repeated.setting.model_copy(update={"seed": seed}))
        for seed in seeds
    ]


def baseline_setting(
    given: Recipe | BaselineSpec, spec: StudySpec, scale: RewardScale | None
) -> TrialSpec:
    """A recipe or a written baseline in the study's units.

    Raises:
        RunError: it needs ``scale`` and there is none, or can't be converted with it.
    """
    try:
        if isinstance(given, BaselineSpec):
            return written_setting(given, spec, scale, _learning_rate(spec))
        return _from_recipe(given, spec, scale)
    except ValueError as error:
        raise RunError(f"baseline {given.name}: {error}") from error


def _from_recipe(recipe: Recipe, spec: StudySpec, scale: RewardScale | None) -> TrialSpec:
    needs_sigma = recipe.beta_in == "advantage" and spec.beta_unit is BetaUnit.REWARD
    needs_length = recipe.target_kl_seq is not None and spec.kl_unit is KLUnit.TOKEN
    if scale is None and (needs_sigma or needs_length):
        raise ValueError(NEEDS_SCALE)
    params: Params = {
        **_learning_rate(spec),
        "beta": recipe.beta,
        "penalty": recipe.penalty.value,
        "controller": recipe.controller.value,
    }
    if scale is not None and needs_sigma:
        params["beta"] = units.beta_of_coefficient(recipe.beta, spec.beta_unit, scale.sigma)
    if recipe.target_kl_seq is not None:
        params["target_kl"] = (
            units.kl_per_token(recipe.target_kl_seq, scale.mean_tokens)
            if scale is not None and needs_length
            else recipe.target_kl_seq
        )
    if recipe.horizon is not None:
        params["horizon"] = recipe.horizon
    return setting_of(params, spec)


def _learning_rate(spec: StudySpec) -> Params:
    """The search's constant, if it is one: fixed trials differ from it in nothing else."""
    dimension = spec.search.learning_rate
    values = () if dimension is None else dimension.values()
    return {"learning_rate": values[0]} if len(values) == 1 else {}


def _is_active(name: str, dimension: Dimension, params: Mapping[str, Value]) -> bool:
    if name in _WITH_KL and params.get("beta") == 0:
        return False
    kind = ControllerKind(str(params.get("controller", ControllerKind.FIXED.value)))
    if name == "target_kl" and not kind.has_target:
        return False
    if name == "horizon" and kind is not ControllerKind.PROPORTIONAL:
        return False
    return all(params.get(parent) == wanted for parent, wanted in dimension.when.items())


def _suggest(optuna_trial: optuna.Trial, name: str, dimension: Dimension) -> Value:
    if dimension.choice is not None:
        return cast("Value", optuna_trial.suggest_categorical(name, dimension.choice))
    low, high = dimension.log or dimension.uniform or (0.0, 0.0)
    return optuna_trial.suggest_float(name, low, high, log=dimension.log is not None)


def _at_share(dimension: Dimension, share: float) -> Value:
    """The value at ``share`` (0 to 1) of a dimension's range or list."""
    if dimension.choice is not None:
        return dimension.choice[min(int(share * len(dimension.choice)), len(dimension.choice) - 1)]
    if dimension.log is not None:
        low, high = (math.log(bound) for bound in dimension.log)
        return min(max(math.exp(low + share * (high - low)), dimension.log[0]), dimension.log[1])
    low, high = dimension.uniform or (0.0, 0.0)
    return low + share * (high - low)
