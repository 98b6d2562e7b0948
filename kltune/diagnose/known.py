"""What is known of one metric's name: the type of the naming tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kltune.symptoms.curve import Quantity

TOKEN: Final = "nats/token"
SEQ: Final = "nats/sequence"
UNDECIDED: Final = ""
"""Of a KL: the name does not say it."""


class Transform(StrEnum):
    """What turns the logged number into the quantity."""

    SAME = "same"
    SQUARE = "square"
    COMPLEMENT = "1 - x"


@dataclass(frozen=True, slots=True)
class Known:
    """One name of one framework."""

    name: str
    """In the tables without a leading ``train/``; ``*`` stands for anything."""
    quantity: Quantity | None
    """None: nothing is made of it, and ``why`` tells why."""
    unit: str = ""
    estimator: str = ""
    """Of a KL, in the framework's default setting."""
    why: str = ""
    is_certain: bool = True
    """False where a setting that the log does not show changes the unit."""
    transform: Transform = Transform.SAME
    is_mean_of_means: bool = False
    """Whether a mean over each sequence's tokens is averaged over sequences: times the mean length that is
    the sum per sequence only where all lengths are equal."""
    zeros_are_missing: bool = False
    """Whether the trainer logs exact zeros where it has no reference to measure against."""

    @property
    def is_kl(self) -> bool:
        """Whether it is a KL to the reference."""
        return self.quantity in (Quantity.KL_TOKEN, Quantity.KL_SEQ)

    @property
    def is_other_distance(self) -> bool:
        """Whether it is a KL, but not one to the reference, or not a KL alone."""
        others = (Quantity.UPDATE_KL_TOKEN, Quantity.SAMPLER_KL_TOKEN)
        return self.quantity in others or (self.quantity is None and bool(self.why))
