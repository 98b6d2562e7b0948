"""Everything that belongs to one trial in its place: what is not here or in its rows of the stacks is shared."""

from __future__ import annotations

from dataclasses import dataclass, field

from kltune.spec.trial import TrialSpec
from kltune.trainer.controller import ControlState
from kltune.trainer.shaping import Moments


@dataclass(slots=True)
class SlotState:
    """A trial in a slot. Weights and moments are the slot's rows of the stack and the optimisers.

    Random streams need no state: every draw is keyed by (seed, step, row), see keyed.py.
    """

    trial_number: int
    spec: TrialSpec
    step: int
    """Steps done."""
    control: ControlState
    """The controller's state; its beta is the coefficient of the next step, in the study's beta_unit."""
    scores: Moments = field(default_factory=Moments)
    """Running moments of the proxy, for ``reward.normalize: running``."""

    @property
    def beta(self) -> float:
        """Coefficient of the next step."""
        return self.control.beta
