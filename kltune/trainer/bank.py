"""K trials over one frozen base on one device: admit, train, judge, save, evict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kltune.errors import OutOfMemoryFault
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.metrics.trace import StepTrace
from kltune.spec.model import ModelSpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import TrialSpec
from kltune.trainer import checkpoint, lora
from kltune.trainer.activations import rows_at_once
from kltune.trainer.controller import start_control
from kltune.trainer.critic import Critic
from kltune.trainer.data import TaskData
from kltune.trainer.evaluate import evaluate
from kltune.trainer.flops import ModelSize
from kltune.trainer.full import FullWeights
from kltune.trainer.micro_batch import MicroBatch
from kltune.trainer.model import LoadedModel
from kltune.trainer.optimizer import StackedAdamW
from kltune.trainer.parts import BankParts, BankSettings
from kltune.trainer.phases import Phases
from kltune.trainer.protocol import Ahead
from kltune.trainer.rows import Rows
from kltune.trainer.slot import SlotState
from kltune.trainer.stack import TrainableStack
from kltune.trainer.trace import step_trace
from kltune.trainer.train_step import traced_step, train_step


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
        """Put ``num_slots`` sets of weights on the base of ``loaded``; a model carries one bank at a time."""
        trainer = settings.trainer
        has_critic = trainer.value_function is not None
        rows = Rows(num_slots, has_critic, trainer.reference.every is not None)
        stack = _stack(loaded, rows, model)
        trained = num_slots * (2 if has_critic else 1)
        width = loaded.head.in_features
        self.parts = BankParts(
            loaded=loaded,
            stack=stack,
            rows=rows,
            optimizer=StackedAdamW(trained, stack.num_parameters, loaded.device),
            critic=Critic(num_slots, width, loaded.device) if has_critic else None,
            data=data,
            settings=settings,
            micro_batch=MicroBatch(
                trainer.rows, _rows_at_once(loaded, data, trainer), _relief(loaded)
            ),
            phases=Phases(loaded.device),
            size=ModelSize.of(loaded.body, loaded.head, loaded.model.config.get_text_config()),
        )
        self._base = checkpoint.fingerprint(loaded.body)
        self._states: dict[int, SlotState] = {}
        self._open = set(range(num_slots))
        self._fault: OutOfMemoryFault | None = None
        prompts = min(settings.evaluate.prompts, len(data.select))
        self._evaluation_micro = MicroBatch(prompts)

    @property
    def num_slots(self) -> int:
        """K; less after :meth:`shrink`."""
        return len(self._open)

    def free_slots(self) -> tuple[int, ...]:
        """Slots without a trial, lowest first."""
        return tuple(sorted(self._open - self._states.keys()))

    def admit(self, slot: int, trial_number: int, spec: TrialSpec, resume_from: Path | None) -> int:
        """Start ``spec`` in a free slot, or continue it from a checkpoint; return the steps done.

        Raises:
            CheckpointError: the checkpoint can't be used, or is of another setting or base.
        """
        assert slot in self.free_slots(), f"slot {slot} is taken"
        if resume_from is None:
            self._reset(slot, spec.seed)
            control = start_control(self.parts.control_facts(spec))
            state = SlotState(trial_number, spec, step=0, control=control)
        else:
            state = checkpoint.load_slot(resume_from, slot, self.parts, spec, self._base)
            state.trial_number = trial_number
        self._states[slot] = state
        return state.step

    def foresee(self, plan: Mapping[int, Ahead]) -> None:
        """Nothing is done ahead here."""
        del plan

    def catch_up(self) -> tuple[StepMetrics, ...]:
        """Nothing, since nothing was done ahead."""
        return ()

    def train_step(self) -> tuple[StepMetrics, ...]:
        """One step of every occupied slot.

        A fault of one slot leaves the steps of the others standing: they are returned, and the
        fault is raised by the next call, before it changes anything.
        """
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        if not self._states:
            return ()
        metrics, fault = train_step(self.parts, self._states)
        if fault is not None and not metrics:
            raise fault
        self._fault = fault
        return metrics

    def traced_step(self, slot: int) -> tuple[StepMetrics, StepTrace]:
        """One step of the slot alone, the same to the last bit, and everything that its loss was made of.

        Raises:
            TrialFault: a scorer failed, or memory ran out.
        """
        metrics, step = traced_step(self.parts, slot, self._states[slot])
        return metrics, step_trace(self.parts, *step)

    def evaluate(self, slots: Sequence[int]) -> tuple[EvalMetrics, ...]:
        """Judge ``slots`` on the select prompts."""
        if not slots:
            return ()
        return evaluate(self.parts, self._states, sorted(slots), self._evaluation_micro)

    def save_checkpoint(self, slot: int, folder: Path) -> None:
        """Write everything that continues the slot's trial."""
        checkpoint.save_slot(folder, slot, self._states[slot], self.parts, self._base)

    def save_adapter(self, slot: int, folder: Path) -> None:
        """Write the slot's trained weights alone."""
        checkpoint.save_adapter(folder, slot, self._states[slot], self.parts.stack)

    def evict(self, slot: int) -> None:
        """Empty a slot; nothing of its trial stays."""
        del self._states[slot]
        if self._fault is not None:
            left = tuple(blamed for blamed in self._fault.slots if blamed != slot)
            self._fault = OutOfMemoryFault(left, str(self._fault)) if left else None
        parts = self.parts
        for row in parts.rows.of(slot):
            parts.stack.clear(row)
        self._forget_moments(slot)

    def shrink(self, slot: int) -> None:
        """Give an empty slot up for good; its rows stay, small beside what a trial needs to run."""
        assert slot in self.free_slots(), f"slot {slot} is taken or gone"
        self._open.discard(slot)

    def _reset(self, slot: int, seed: int) -> None:
        """Fresh weights in every row of the slot: the critic's adapters and a moving reference start as the policy."""
        for row in self.parts.rows.of(slot):
            self.parts.stack.reset(row, seed)
        self._forget_moments(slot)

    def _forget_moments(self, slot: int) -> None:
        parts = self.parts
        for row in parts.rows.of(slot):
            if row < len(parts.optimizer.num_steps_K):  # a moving reference has no moments
                parts.optimizer.reset(row)
        if parts.critic is not None:
            parts.critic.reset(slot)


def _rows_at_once(loaded: LoadedModel, data: TaskData, trainer: TrainerSpec) -> int:
    """As the spec says; else by the size of the activations, on a CPU, where smaller pieces are as fast."""
    if trainer.micro_batch is not None or loaded.device.type != "cpu":
        return trainer.micro_batch or trainer.rows
    return rows_at_once(loaded.body, trainer, data.train.width)


def _relief(loaded: LoadedModel) -> Callable[[], bool]:
    """What is left to do where not even one row fits: our own forward can keep less for its gradient."""
    return (lambda: False) if loaded.fused is None else loaded.fused.save_memory


def _stack(loaded: LoadedModel, rows: Rows, model: ModelSpec) -> TrainableStack:
    if model.finetune == "full":
        assert rows.num_slots == 1, "full fine-tuning is a bank of one"
        lora.detach(loaded.body)
        return FullWeights(loaded.model, rows.total, loaded.device)
    return lora.attach(loaded.body, rows.total, model.rank, model.lora_alpha, model.adapters)
