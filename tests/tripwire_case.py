"""A winner and what a framework is told of it, made up; and a tripwire as a module that its file was read into."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from kltune.export.key import Exported, Key
from kltune.export.releases import key_list
from kltune.export.setting import Gold, Measured, Source, Stop, Winner
from kltune.export.target import Sizes, Target
from kltune.export.tripwire import tripwire
from kltune.spec.control import ControlSpec
from kltune.spec.guards import GuardsSpec, KLGuardSpec
from kltune.spec.penalty import Penalty
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec

MEAN_TOKENS = 20.0

TOLD: Mapping[str, Mapping[str, Any]] = {
    "trl": {"beta": 0.04},
    "verl": {
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
        "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
    },
    "openrlhf": {
        "--algo.kl.use_loss": True,
        "--algo.kl.estimator": "k3",
        "--algo.kl.init_coef": 0.04,
    },
}


STOP = Stop(60, 70, 60, 80, 80, 0.05, 1.0, "")
GUARD = KLGuardSpec(limit=0.2)


def winner(
    *,
    kl_unit: KLUnit = KLUnit.TOKEN,
    stop: Stop | None = STOP,
    kl_guard: KLGuardSpec | None = GUARD,
    kl_limit: float | None = 0.2,
    guards: GuardsSpec | None = None,
    lora_rank: int | None = 4,
    study: str = "kitchen",
) -> Winner:
    """Gold peaks at 0.05 nats/token; the limit is 0.2 in ``kl_unit``."""
    return Winner(
        source=Source(study, 7, "tpe", True, 0, "builtin:kitchen", lora_rank),
        setting=TrialSpec(beta=0.02, penalty=Penalty.K3_LOSS, learning_rate=1e-3),
        trainer=TrainerSpec(steps=80, max_new_tokens=32),
        control=ControlSpec(),
        beta_unit=BetaUnit.REWARD,
        kl_unit=kl_unit,
        measured=Measured(0.5, 0.6, MEAN_TOKENS, None, 0.04, 0.02, (55, 60)),
        stop=stop,
        gold=Gold(0.7, 0.6, 0.8, 0.3, "64 select prompts"),
        guards=guards or GuardsSpec(),
        kl_guard=kl_guard,
        kl_limit=kl_limit,
        confirmation="not confirmed",
    )


def target(framework: str, version: str | None = None, mean_tokens: float = MEAN_TOKENS) -> Target:
    """The study's own sizes but for the mean length."""
    keys = key_list(framework, version)[0]
    return Target(framework, version or keys.version, keys, 64, 8, mean_tokens, 32, Sizes())


def exported(
    framework: str,
    version: str | None = None,
    values: Mapping[str, Any] | None = None,
    builder: str | None = None,
) -> Exported:
    """What the framework is told; by default a k3 in the loss."""
    told = TOLD[framework] if values is None else values
    keys = tuple(Key(name, value, "") for name, value in told.items())
    made = builder or ("GRPOConfig" if framework == "trl" else "")
    version = version or key_list(framework, None)[0].version
    return Exported(framework, version, keys, (), builder=made)


def text(
    framework: str = "trl",
    the_winner: Winner | None = None,
    mean_tokens: float = MEAN_TOKENS,
    **told: Any,
) -> str:
    """The file's text."""
    version = told.get("version")
    where = target(framework, version, mean_tokens)
    return tripwire(the_winner or winner(), where, exported(framework, **told)).text


def load(source: str, folder: Path) -> ModuleType:
    """The file as the module that a user imports, outside of sys.modules."""
    path = folder / "tripwire.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("tripwire", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_limits(the_winner: Winner) -> Winner:
    return replace(the_winner, kl_guard=None, kl_limit=None)
