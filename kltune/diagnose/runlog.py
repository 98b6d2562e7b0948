"""Any framework's log of one run, in kltune's quantities: what the readers make and the rules look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kltune.symptoms.curve import Curve, Quantity


@dataclass(frozen=True, slots=True)
class Reading:
    """How one quantity was read: from which name, in which unit, and why that unit is believed."""

    quantity: Quantity
    name: str
    """The name in the log, e.g. ``train/kl``."""
    unit: str
    """``nats/token``, ``nats/sequence``, ``proxy reward``, ...; empty where the quantity has none."""
    estimator: str = ""
    """Of a KL: ``exact``, ``k1``, ``k2``, ``k3``; empty: not known."""
    why: str = ""
    """How unit and estimator are known: by the framework's definition, by magnitude, as the flag says."""
    is_certain: bool = True
    """False where the unit was inferred from magnitudes and not defined by the framework."""


@dataclass(frozen=True, slots=True)
class RunLog:
    """One run as it was logged."""

    path: str
    """What the user gave."""
    framework: str
    """``kltune``, ``trl``, ``verl``, ``openrlhf``, ``nemo-rl``, ``unknown``."""
    kind: str
    """What the log is, for people: ``TRL trainer_state.json``, ``verl file log``, ``MLflow run``."""
    curve: Curve
    readings: Mapping[Quantity, Reading]
    """How each quantity of the curve was read."""
    facts: Mapping[str, float | str] = field(default_factory=dict[str, float | str])
    """What else is known of the run: ``beta``, ``learning_rate``, ``group_size``, ``max_new_tokens``,
    ``temperature``, ``algorithm``, ``penalty``, ``steps``, ``kl_limit``."""
    ignored: tuple[str, ...] = ()
    """Names in the log that nothing was made of."""
    unread_kl: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of a KL to the reference that is in the log and could not be used, each with the reason in a
    sentence; empty where a KL was read, or where there is none."""
    restart: str = ""
    """How many steps were logged again after a restart, for people; empty: none."""
    notes: tuple[str, ...] = ()
    """What the reader has to say: rows that could not be read, names of another distance left out."""
