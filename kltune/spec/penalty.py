"""The KL penalties: which estimator, placed where, and which gradient that has.

Labels are ``estimator-placement``. Gradients after kl-reference.md §1.2-1.3 (Tang & Munos
2506.09477; Liu et al. 2510.01555); the tests enumerate each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Penalty(StrEnum):
    """Estimator and placement of the KL penalty (design.md §3)."""

    K1_REWARD = "k1-reward"
    EXACT_FULL = "exact-full"
    K2_LOSS = "k2-loss"
    WK1_LOSS = "wk1-loss"
    WK3_LOSS = "wk3-loss"
    K3PLUS_LOSS = "k3plus-loss"
    EXACT_LOSS = "exact-loss"
    TOPK_LOSS = "topk-loss"
    K3_LOSS = "k3-loss"
    FORWARD_LOSS = "forward-loss"
    JEFFREYS_LOSS = "jeffreys-loss"
    K1_LOSS = "k1-loss"
    ABS_LOSS = "abs-loss"
    ABS_REWARD = "abs-reward"
    K2_REWARD = "k2-reward"
    K3_REWARD = "k3-reward"
    EXACT_REWARD = "exact-reward"

    @property
    def in_reward(self) -> bool:
        """Whether a KL is paid in the reward, before the baseline (exact-full pays there too)."""
        return self.value.endswith("-reward") or self is Penalty.EXACT_FULL

    @property
    def in_loss(self) -> bool:
        """Whether a KL stands in the loss (exact-full stands there too)."""
        return self.value.endswith("-loss") or self is Penalty.EXACT_FULL

    @property
    def nature(self) -> Nature:
        """Which gradient it has, and why one might not want it."""
        return NATURES[self]


@dataclass(frozen=True, slots=True)
class Nature:
    """What the expected gradient of a penalty is."""

    gradient: str
    """In a person's words."""
    refusal: str | None = None
    """Why the penalty is refused unless the spec says ``allow_biased``; none: it is sound."""


_FULL: Final = "reverse KL of the whole sequence"
_LOCAL: Final = "reverse KL, token-local"
_FORWARD: Final = "forward KL, token-local"

NATURES: Mapping[Penalty, Nature] = MappingProxyType(
    {
        Penalty.K1_REWARD: Nature(_FULL),
        Penalty.EXACT_FULL: Nature(_FULL),
        Penalty.K2_LOSS: Nature(_LOCAL),
        Penalty.WK1_LOSS: Nature(_LOCAL),
        Penalty.WK3_LOSS: Nature(_LOCAL),
        Penalty.K3PLUS_LOSS: Nature(_LOCAL),
        Penalty.EXACT_LOSS: Nature(_LOCAL),
        Penalty.TOPK_LOSS: Nature(_LOCAL),
        Penalty.K3_LOSS: Nature(_FORWARD),
        Penalty.FORWARD_LOSS: Nature(_FORWARD),
        Penalty.JEFFREYS_LOSS: Nature("forward + reverse KL, token-local"),
        Penalty.K1_LOSS: Nature(
            "none",
            "estimator k1 placed in the loss has an expected gradient of 0, so it adds noise only",
        ),
        Penalty.ABS_LOSS: Nature(
            "total variation, token-local", "abs in the loss is a total-variation penalty, not a KL"
        ),
        Penalty.ABS_REWARD: Nature("none of a KL", "abs in the reward has a wrong gradient"),
        Penalty.K2_REWARD: Nature("none of a KL", "k2 in the reward has a wrong gradient"),
        Penalty.K3_REWARD: Nature(
            "reverse - forward KL",
            "k3 in the reward has a wrong gradient (it can point away from the reference)",
        ),
        Penalty.EXACT_REWARD: Nature(
            "reverse KL, future terms only",
            "the exact KL in the reward alone does not depend on the token it is paid for, so it has no "
            "local pull (exact-full has both parts)",
        ),
    }
)
"""Every penalty's nature."""
