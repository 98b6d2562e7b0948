"""Everything that belongs to one trial in its place: what is not here or in its rows of the stacks is shared."""

from __future__ import annotations

from dataclasses import dataclass

from kltune.spec.trial import TrialSpec


@dataclass(slots=True)
class SlotState:
    """A trial in a slot. Adapter and moments are the slot's rows of AdapterStack and StackedAdamW.

    Random streams need no state: every draw is keyed by (seed, step, row), see keyed.py.
    """

    trial_number: int
    spec: TrialSpec
    step: int
    """Steps done."""
    beta: float
    """The controller's state: coefficient of the next step, in the study's beta_unit."""
