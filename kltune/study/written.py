"""A baseline that the spec writes out in, its setting in the study's units out, by the proxy's scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from kltune import units
from kltune.metrics.record import RewardScale
from kltune.spec.baseline import BaselineSpec
from kltune.spec.search import Value
from kltune.spec.study import StudySpec
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec

NEEDS_SCALE: Final = "needs the proxy's scale under the reference first"


def written_setting(
    given: BaselineSpec,
    spec: StudySpec,
    scale: RewardScale | None,
    rate: Mapping[str, Value],
) -> TrialSpec:
    """Convert with ``scale``, the proxy under the reference; none is enough where nothing needs it.

    ``rate``: the learning rate, where the search holds one for all.

    Raises:
        ValueError: the scale is missing or can't be used.
    """
    params: dict[str, object] = {
        "learning_rate": spec.trainer.learning_rate,
        "seed": spec.seed,
        **rate,
        "beta": _beta(given, spec, scale),
        "controller": given.controller.value,
    }
    if given.penalty is not None:
        params["penalty"] = given.penalty.value
    target = _target(given, spec, scale)
    if target is not None:
        params["target_kl"] = target
    if given.horizon is not None:
        params["horizon"] = given.horizon
    return TrialSpec.model_validate(params)


def _beta(given: BaselineSpec, spec: StudySpec, scale: RewardScale | None) -> float:
    """A KL in the reward is priced in raw reward in both units of beta; one in the loss is not."""
    if given.beta == 0 or given.penalty is None:
        return 0.0
    wanted = "reward" if given.penalty.in_reward or spec.beta_unit is BetaUnit.REWARD else "native"
    if given.beta_in == ("reward" if wanted == "reward" else "advantage"):
        return given.beta
    trainer = spec.trainer
    critic = trainer.value_function
    is_whitened = critic is None or critic.whiten
    share = units.baseline_share(trainer.algorithm, trainer.group_size)
    divides = units.advantage_scale(trainer.algorithm, 1.0, 1.0, is_whitened=is_whitened)
    if divides is not None and scale is None:
        raise ValueError(NEEDS_SCALE)
    by = 1.0
    if divides is not None and scale is not None:
        found = units.advantage_scale(
            trainer.algorithm, scale.sigma, scale.std, is_whitened=is_whitened
        )
        by = math.nan if found is None else found
    # One nat in raw reward, beside the advantages, is worth share / by of them.
    one = units.in_advantage_units(share, by)
    return given.beta / one if wanted == "reward" else given.beta * one


def _target(given: BaselineSpec, spec: StudySpec, scale: RewardScale | None) -> float | None:
    per_token = spec.kl_unit is KLUnit.TOKEN
    same, other = given.target_kl_token, given.target_kl_seq
    if not per_token:
        same, other = other, same
    if same is not None or other is None:
        return same
    if scale is None:
        raise ValueError(NEEDS_SCALE)
    convert = units.kl_per_token if per_token else units.kl_per_sequence
    return convert(other, scale.mean_tokens)
