"""What a bank is made of: shared by the step, the evaluation and the checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kltune.metrics.record import RewardScale
from kltune.spec.control import ControlSpec
from kltune.spec.penalty import Penalty
from kltune.spec.study import EvaluateSpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.trainer.controller import ControlFacts
from kltune.trainer.critic import Critic
from kltune.trainer.data import TaskData
from kltune.trainer.flops import ModelSize, Passes
from kltune.trainer.logprobs import Scoring
from kltune.trainer.lora import AdapterStack
from kltune.trainer.micro_batch import MicroBatch
from kltune.trainer.model import LoadedModel
from kltune.trainer.optimizer import StackedAdamW
from kltune.trainer.phases import Phases
from kltune.trainer.rollout import Sampling
from kltune.trainer.rows import Rows
from kltune.trainer.stack import TrainableStack

DIFFERENTIABLE: dict[Penalty, frozenset[str]] = {
    Penalty.EXACT_LOSS: frozenset({"exact"}),
    Penalty.EXACT_FULL: frozenset({"exact"}),
    Penalty.TOPK_LOSS: frozenset({"top_k"}),
    Penalty.FORWARD_LOSS: frozenset({"forward"}),
    Penalty.JEFFREYS_LOSS: frozenset({"exact", "forward"}),
}
"""Whole-distribution columns that a penalty in the loss differentiates; the others need the sampled token only."""


@dataclass(frozen=True, slots=True)
class BankSettings:
    """What all trials of a bank share."""

    trainer: TrainerSpec
    evaluate: EvaluateSpec
    control: ControlSpec
    kl_unit: KLUnit
    beta_unit: BetaUnit
    scale: RewardScale
    compact: bool
    """Drop empty slots' rows and finished rows (CPU). Off: fixed shapes, neighbours change not one bit."""
    keep_all: bool = False
    """Evaluations keep every completion, not ``evaluate.keep`` of them."""


@dataclass(frozen=True, slots=True)
class BankParts:
    """The frozen base, the stacked per-slot state, the data and the settings."""

    loaded: LoadedModel
    stack: TrainableStack
    rows: Rows
    optimizer: StackedAdamW
    """Moments of every row that is trained."""
    critic: Critic | None
    """The value heads; none but under ppo."""
    data: TaskData
    settings: BankSettings
    micro_batch: MicroBatch
    phases: Phases
    size: ModelSize
    """What a token costs, for the accounting."""
    keeps_inputs: bool = False
    """Keep what each update's loss was made of (`LossTerms.seen`), for a trace."""

    @property
    def slot_by_slot(self) -> bool:
        """Whether slots are learned from one after another: nothing but launches would be shared, and memory be K-fold."""
        return self.loaded.fused is not None and not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether all weights are trained."""
        return not isinstance(self.stack, AdapterStack)

    @property
    def adapter_parameters(self) -> int:
        """Weights of one adapter; 0 where all weights are trained."""
        return 0 if self.is_full else self.stack.num_parameters

    @property
    def passes(self) -> Passes:
        """What a step runs through the model."""
        return Passes.of(self.settings.trainer, is_full=self.is_full)

    @property
    def scoring(self) -> Scoring:
        """How rows are scored where nothing is learned from them."""
        return Scoring(self.settings.trainer.temperature, only_valid=self.settings.compact)

    def scoring_for(self, specs: list[TrialSpec]) -> Scoring:
        """How rows are scored for an update of these trials: with the gradients that their losses need."""
        wanted = [DIFFERENTIABLE.get(s.penalty, frozenset[str]()) for s in specs if s.penalty]
        needed = frozenset[str]().union(*wanted)
        if self.settings.trainer.entropy_bonus:
            needed |= {"entropy"}
        top_k = self.settings.trainer.kl.top_k if "top_k" in needed else None
        return replace(self.scoring, gradients=needed, top_k=top_k)

    def sampling(self, group_size: int) -> Sampling:
        """How completions are drawn."""
        trainer = self.settings.trainer
        return Sampling(
            group_size, trainer.max_new_tokens, trainer.temperature, self.settings.compact
        )

    def control_facts(self, spec: TrialSpec) -> ControlFacts:
        """What a trial's controller knows."""
        trainer = self.settings.trainer
        return ControlFacts(spec, self.settings.control, trainer.steps, trainer.rows)

    def to_device(self, uniforms: list[NDArray[np.float32]]) -> Tensor:
        """Stack each slot's uniforms: ``[K, N, T]``."""
        stacked = torch.from_numpy(np.stack(uniforms))
        if self.loaded.device.type == "cuda":  # on its way while the prompts are read
            return stacked.pin_memory().to(self.loaded.device, non_blocking=True)
        return stacked.to(self.loaded.device)
