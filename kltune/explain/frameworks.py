"""What each framework logs as KL, in which unit, and what its beta is a price of: a table, read from their code.

Sources and versions: kl-reference.md §2.1, §3.1, §3.5 and §4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class FrameworkLog:
    """One way of using one framework."""

    key: str
    """What a person types."""
    name: str
    metric: str
    """Of the KL from policy to reference, as logged; never multiplied by beta."""
    estimator: str
    """wk3: k3 times a differentiable importance ratio."""
    kl_unit: Literal["nats/token", "nats/sequence"]
    beta_in: Literal["reward", "advantage"]
    """reward: raw reward per nat of sequence KL. advantage: beside advantages over the group std."""
    n: str | None
    """Sequences of a step, which its controller divides by the horizon; none: it has no controller."""


_ALL: Final = (
    FrameworkLog("trl-grpo", "TRL GRPO", "kl", "wk3", "nats/token", "advantage", None),
    FrameworkLog("trl-rloo", "TRL RLOO", "kl", "k1", "nats/token", "reward", None),
    FrameworkLog(
        "trl-ppo",
        "TRL PPO",
        "objective/kl",
        "k1",
        "nats/sequence",
        "reward",
        "batch_size × processes",
    ),
    FrameworkLog(
        "verl-reward",
        "verl, in reward",
        "actor/reward_kl_penalty",
        "k1",
        "nats/token",
        "reward",
        "train_batch_size × rollout.n",
    ),
    FrameworkLog(
        "verl-loss", "verl, in loss", "actor/kl_loss", "k3", "nats/token", "advantage", None
    ),
    FrameworkLog(
        "openrlhf-reward",
        "OpenRLHF, in reward",
        "train/kl",
        "k1",
        "nats/token",
        "reward",
        "rollout.batch_size × n_samples_per_prompt",
    ),
    FrameworkLog(
        "openrlhf-loss",
        "OpenRLHF, in loss",
        "train/kl",
        "k2 or k3",
        "nats/token",
        "advantage",
        "rollout.batch_size × n_samples_per_prompt",
    ),
    FrameworkLog(
        "nemo-grpo", "NeMo-RL GRPO", "train/kl_penalty", "wk3", "nats/token", "advantage", None
    ),
    FrameworkLog(
        "kltune",
        "kltune",
        "kl/exact_token",
        "exact",
        "nats/token",
        "reward",
        "prompts × group_size",
    ),
)

FRAMEWORKS: Final[Mapping[str, FrameworkLog]] = MappingProxyType({row.key: row for row in _ALL})
"""By key."""
