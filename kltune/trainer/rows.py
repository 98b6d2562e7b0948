"""Which rows of the stacked weights belong to a slot: its policy, its critic, its own reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rows:
    """The layout of a stack: all policies, then all critics, then all moving references."""

    num_slots: int
    has_critic: bool
    has_reference: bool

    @property
    def total(self) -> int:
        """Rows of the stack."""
        return self.num_slots * (1 + int(self.has_critic) + int(self.has_reference))

    def of(self, slot: int) -> tuple[int, ...]:
        """Every row of one slot, its policy first."""
        return tuple(range(slot, self.total, self.num_slots))

    def critics(self, slots: Sequence[int]) -> tuple[int, ...]:
        """The critics' rows of some slots."""
        assert self.has_critic, "only ppo has critics"
        return tuple(self.num_slots + slot for slot in slots)

    def references(self, slots: Sequence[int]) -> tuple[int, ...]:
        """The moving references' rows of some slots."""
        assert self.has_reference, "this reference does not move"
        before = self.num_slots * (2 if self.has_critic else 1)
        return tuple(before + slot for slot in slots)
