"""All that the study needs of the trainer: a bank of slots and what it measures. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.trial import TrialSpec


@dataclass(frozen=True, slots=True)
class Ahead:
    """What will be asked of a slot if nothing unforeseen happens: steps, then an evaluation or a checkpoint."""

    steps: int
    """Until then, 1 or more."""
    may_end: Callable[[StepMetrics], bool]
    """Whether something may be decided after this step; can be pickled."""
    is_judged: bool = True
    """Whether an evaluation follows."""


class TrialBank(Protocol):
    """K slots that train at once on one device."""

    @property
    def num_slots(self) -> int:
        """K; less after :meth:`shrink`."""
        ...

    def free_slots(self) -> tuple[int, ...]:
        """Slots without a trial, lowest first."""
        ...

    def admit(self, slot: int, trial_number: int, spec: TrialSpec, resume_from: Path | None) -> int:
        """Start ``spec`` in a free slot, or continue it from a checkpoint folder; return the steps done."""
        ...

    def foresee(self, plan: Mapping[int, Ahead]) -> None:
        """Say what each slot's next calls will be; a slot that isn't named is asked step by step.

        A bank may work ahead of the calls; what it returns is the same, and after a step that
        ``may_end`` the trial it waits.
        """
        ...

    def catch_up(self) -> tuple[StepMetrics, ...]:
        """One step of each slot that worked ahead of :meth:`train_step`; nothing once all is seen."""
        ...

    def train_step(self) -> tuple[StepMetrics, ...]:
        """One step of every occupied slot."""
        ...

    def evaluate(self, slots: Sequence[int]) -> tuple[EvalMetrics, ...]:
        """Judge ``slots`` on the select prompts; trains nothing and moves no random stream."""
        ...

    def save_checkpoint(self, slot: int, folder: Path) -> None:
        """Write everything that continues the trial, atomically."""
        ...

    def save_adapter(self, slot: int, folder: Path) -> None:
        """Write the slot's adapter alone (safetensors), atomically."""
        ...

    def evict(self, slot: int) -> None:
        """Empty a slot."""
        ...

    def shrink(self, slot: int) -> None:
        """Give an empty slot up for good: K trials at once do not fit in memory."""
        ...
