"""K trials over one frozen base on one device: admit, train, judge, save, evict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.model import ModelSpec
from kltune.spec.trial import TrialSpec
from kltune.trainer import checkpoint, lora
from kltune.trainer.data import TaskData
from kltune.trainer.evaluate import evaluate
from kltune.trainer.micro_batch import MicroBatch
from kltune.trainer.model import LoadedModel
from kltune.trainer.optimizer import StackedAdamW
from kltune.trainer.parts import BankParts, BankSettings
from kltune.trainer.slot import SlotState
from kltune.trainer.train_step import train_step


class Bank:
    """A :class:`kltune.trainer.protocol.TrialBank` over stacked adapters (design.md §5)."""

    def __init__(
        self,
        loaded: LoadedModel,
        data: TaskData,
        settings: BankSettings,
        model: ModelSpec,
        num_slots: int,
    ) -> None:
        """Put ``num_slots`` adapters on the base of ``loaded``; a model carries one bank at a time."""
        stack = lora.attach(loaded.body, num_slots, model.rank, model.lora_alpha)
        optimizer = StackedAdamW(num_slots, stack.num_parameters, loaded.device)
        micro = MicroBatch(settings.trainer.rows, settings.trainer.micro_batch)
        self.parts = BankParts(loaded, stack, optimizer, data, settings, micro)
        self._states: dict[int, SlotState] = {}
        self._num_slots = num_slots
        prompts = min(settings.evaluate.prompts, len(data.select))
        self._evaluation_micro = MicroBatch(prompts)

    @property
    def num_slots(self) -> int:
        """K."""
        return self._num_slots

    def free_slots(self) -> tuple[int, ...]:
        """Slots without a trial, lowest first."""
        return tuple(slot for slot in range(self._num_slots) if slot not in self._states)

    def admit(self, slot: int, trial_number: int, spec: TrialSpec, resume_from: Path | None) -> int:
        """Start ``spec`` in a free slot, or continue it from a checkpoint; return the steps done.

        Raises:
            RunError: the checkpoint can't be used.
        """
        assert slot in self.free_slots(), f"slot {slot} is taken"
        if resume_from is None:
            self.parts.stack.reset(slot, spec.seed)
            self.parts.optimizer.reset(slot)
            state = SlotState(trial_number, spec, step=0, beta=spec.beta)
        else:
            state = checkpoint.load_slot(resume_from, slot, self.parts.stack, self.parts.optimizer)
            state.trial_number = trial_number
        self._states[slot] = state
        return state.step

    def train_step(self) -> tuple[StepMetrics, ...]:
        """One step of every occupied slot."""
        return train_step(self.parts, self._states) if self._states else ()

    def evaluate(self, slots: Sequence[int]) -> tuple[EvalMetrics, ...]:
        """Judge ``slots`` on the select prompts."""
        if not slots:
            return ()
        return evaluate(self.parts, self._states, sorted(slots), self._evaluation_micro)

    def save_checkpoint(self, slot: int, folder: Path) -> None:
        """Write everything that continues the slot's trial."""
        checkpoint.save_slot(
            folder, slot, self._states[slot], self.parts.stack, self.parts.optimizer
        )

    def save_adapter(self, slot: int, folder: Path) -> None:
        """Write the slot's adapter alone."""
        checkpoint.save_adapter(folder, slot, self._states[slot], self.parts.stack)

    def evict(self, slot: int) -> None:
        """Empty a slot; nothing of its trial stays."""
        del self._states[slot]
        self.parts.stack.clear(slot)
        self.parts.optimizer.reset(slot)
