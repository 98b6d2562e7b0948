"""One resolved point of the search: everything that makes a trial differ from its neighbours."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import NonNegativeFloat, PositiveFloat, model_validator

from kltune.spec.closed import Closed
from kltune.spec.penalty import Penalty

CONTROLLER_CLIP: Final = 0.2
"""Bound of the proportional controller's relative error KL / target - 1 (Ziegler et al. 2019)."""


class ControllerKind(StrEnum):
    """How beta moves during a trial. ``threshold-*`` are rules of the literature by their numbers."""

    FIXED = "fixed"
    PROPORTIONAL = "proportional"
    SCHEDULE = "schedule"
    THRESHOLD = "threshold"
    THRESHOLD_PPO = "threshold-ppo2017"
    THRESHOLD_20_UNEVEN = "threshold-1.2x0.8"
    THRESHOLD_20 = "threshold-1.2x"
    THRESHOLD_50 = "threshold-1.5x"

    @property
    def is_threshold(self) -> bool:
        """Whether it is one of the threshold rules."""
        return self.value.startswith("threshold")

    @property
    def has_target(self) -> bool:
        """Whether it steers KL to a set point; it multiplies beta, so it can't leave beta = 0."""
        return self is ControllerKind.PROPORTIONAL or self.is_threshold


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
    """Set point of the controller, in the study's ``kl_unit``; none where control.calibrate measures it."""

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
        kind = self.controller
        if kind.has_target and self.beta == 0:
            raise ValueError(
                f"controller: {kind.value} multiplies beta, so it can't leave beta = 0; "
                "start above 0 or use fixed"
            )
        if kind is ControllerKind.PROPORTIONAL and self.horizon is None:
            raise ValueError("controller: proportional needs horizon")
        return self
