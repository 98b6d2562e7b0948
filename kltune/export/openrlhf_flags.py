"""A flag of OpenRLHF by its newest name in, the same under the name that a release has out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kltune.export.key import Key, Value
from kltune.export.releases import Version
from kltune.export.target import Target

OLD_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "--algo.advantage.estimator": "--advantage_estimator",
        "--algo.advantage.gamma": "--gamma",
        "--algo.advantage.lambd": "--lambd",
        "--algo.kl.init_coef": "--init_kl_coef",
        "--algo.kl.estimator": "--kl_estimator",
        "--algo.kl.use_loss": "--use_kl_loss",
        "--algo.kl.target": "--kl_target",
        "--algo.kl.horizon": "--kl_horizon",
        "--actor.eps_clip": "--eps_clip",
        "--actor.eps_clip_low_high": "--eps_clip_low_high",
        "--actor.dual_clip": "--dual_clip",
        "--actor.entropy_coef": "--entropy_loss_coef",
        "--actor.adam.lr": "--actor_learning_rate",
        "--actor.adam.weight_decay": "--l2",
        "--actor.lr_scheduler": "--lr_scheduler",
        "--actor.lr_warmup_ratio": "--lr_warmup_ratio",
        "--actor.max_norm": "--max_norm",
        "--critic.adam.lr": "--critic_learning_rate",
        "--critic.value_clip": "--value_clip",
        "--rollout.batch_size": "--rollout_batch_size",
        "--rollout.n_samples_per_prompt": "--n_samples_per_prompt",
        "--rollout.temperature": "--temperature",
        "--rollout.max_new_tokens": "--max_new_tokens",
        "--train.batch_size": "--train_batch_size",
        "--train.max_epochs": "--max_epochs",
    }
)
"""Names up to 0.10.1; dotted from 0.10.2 on."""

_BY_STEP: Final = (0, 10, 3)
"""First release that divides a micro-batch's KL by the tokens of its whole update (aggregate_loss)."""


def dynamic_batch_words(number: Version) -> tuple[str, ...]:
    """What dynamic batches do to the KL of the loss that is logged (trainer/ray/ppo_actor.py, kl_loss)."""
    if number < _BY_STEP:
        return ()
    return (
        "with --train.dynamic_batch_enable OpenRLHF logs the KL of the loss, and compares an adaptive target with it, "
        "divided by the number of micro-batches of an update on one rank: leave that flag off, or multiply by it",
    )


def flag(target: Target, name: str, value: Value, comment: str, *, is_set: bool = True) -> Key:
    """Under the name that the release has; where it has none, under the old one."""
    if name not in target.keys:
        name = OLD_NAMES.get(name, name)
    if name == "--max_new_tokens" and name not in target.keys:
        name = "--generate_max_len"
    return Key(name, value, comment, is_set)
