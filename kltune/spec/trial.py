"""One resolved point of the search: everything that makes a trial differ from its neighbours."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import NonNegativeFloat, PositiveFloat, model_validator

from kltune.spec.closed import Closed

CONTROLLER_CLIP: Final = 0.2
"""Bound of the proportional controller's relative error KL / target - 1 (Ziegler et al. 2019)."""


class Penalty(StrEnum):
    """Estimator and placement of the KL penalty (design.md §3).

    ``k1-reward`` has the sequence-full reverse-KL gradient, ``k2-loss`` the token-local
    reverse-KL gradient, ``k3-loss`` (GRPO classic) the forward-KL gradient.
    """

    K1_REWARD = "k1-reward"
    K2_LOSS = "k2-loss"
    K3_LOSS = "k3-loss"

    @property
    def in_reward(self) -> bool:
        """Whether the KL is paid in the reward, before the group is normalised."""
        return self is Penalty.K1_REWARD


class ControllerKind(StrEnum):
    """How beta moves during a trial."""

    FIXED = "fixed"
    PROPORTIONAL = "proportional"


class KLUnit(StrEnum):
    """What target_kl and KL limits are in: nats per token or nats per sequence."""

    TOKEN = "token"
    SEQUENCE = "sequence"


class BetaUnit(StrEnum):
    """What beta is in: raw proxy reward per nat of sequence KL, or the framework's own."""

    REWARD = "reward"
    NATIVE = "native"


class TrialSpec(Closed):
    """One setting. The seed fixes prompts, sampling and adapter initialisation."""

    beta: NonNegativeFloat
    """KL coefficient at step 0, in the study's ``beta_unit``; 0 is an arm of its own."""

    penalty: Penalty | None = None
    """Estimator and placement; none only where beta is 0."""

    controller: ControllerKind = ControllerKind.FIXED
    """How beta moves."""

    target_kl: PositiveFloat | None = None
    """Set point of the proportional controller, in the study's ``kl_unit``."""

    horizon: PositiveFloat | None = None
    """Time constant of the proportional controller, in sequences."""

    learning_rate: PositiveFloat
    """AdamW step size of the adapters."""

    seed: int = 0
    """Root of every random number that the trial draws."""

    @model_validator(mode="after")
    def _controller_is_complete(self) -> TrialSpec:
        if self.beta > 0 and self.penalty is None:
            raise ValueError("penalty: needed where beta is above 0")
        if self.controller is ControllerKind.PROPORTIONAL:
            if self.beta == 0:
                raise ValueError(
                    "controller: proportional multiplies beta, so it can't leave beta = 0; "
                    "start above 0 or use fixed"
                )
            if self.target_kl is None or self.horizon is None:
                raise ValueError("controller: proportional needs target_kl and horizon")
        return self
