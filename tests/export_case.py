"""Changes in, a `Winner` and a `Target` out: a setting as a study would have left it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kltune.export.setting import Gold, Measured, Source, Stop, Winner
from kltune.export.target import Sizes, Target, make_target
from kltune.spec.control import ControlSpec
from kltune.spec.guards import GuardsSpec, KLGuardSpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec

SIGMA_R, STD_R, TOKENS = 0.5, 0.8, 24.0


def winner(
    penalty: str | None = "k2-loss",
    beta: float = 0.1,
    trainer: dict[str, Any] | None = None,
    measured: dict[str, Any] | None = None,
    **changes: Any,
) -> Winner:
    """A recommended, unconfirmed trial 7; setting fields may stand among the changes."""
    fields = {f: changes.pop(f) for f in list(changes) if f in TrialSpec.model_fields}
    target = fields.get("target_kl")
    shapes = {"steps": 80, "prompts": 8, "group_size": 8, "max_new_tokens": 32}
    found = Winner(
        source=Source("kitchen", 7, "sobol", True, 0, "builtin:kitchen", 8),
        setting=TrialSpec.model_validate(
            {"beta": beta, "penalty": penalty, "learning_rate": 1e-3, **fields}
        ),
        trainer=TrainerSpec.model_validate({**shapes, **(trainer or {})}),
        control=ControlSpec(),
        beta_unit=BetaUnit.REWARD,
        kl_unit=KLUnit.TOKEN,
        measured=replace(
            Measured(SIGMA_R, STD_R, TOKENS, target, None, 3 * beta, (36, 40)), **(measured or {})
        ),
        stop=Stop(30, 50, 40, 80, 80, 0.1, 2.4, ""),
        gold=Gold(1.1, 1.0, 1.2, 0.2, "gold_peak on the select prompts"),
        guards=GuardsSpec(),
        kl_guard=KLGuardSpec(limit=0.5),
        kl_limit=0.5,
        confirmation="not confirmed",
    )
    return replace(found, **changes)


def adaptive(**changes: Any) -> Winner:
    """The same, steered in the reward to .25 nats/token with horizon 640."""
    given = {"penalty": "k1-reward", "controller": "proportional", "target_kl": 0.25}
    return winner(**{**given, "horizon": 640, **changes})


def target(found: Winner, framework: str, version: str | None = None, **sizes: Any) -> Target:
    """Of the study's own sizes but for those given."""
    return make_target(found, framework, version, Sizes(**sizes))
