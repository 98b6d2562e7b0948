"""What a bank is made of: shared by the step, the evaluation and the checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kltune.metrics.record import RewardScale
from kltune.spec.study import EvaluateSpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, KLUnit
from kltune.trainer.data import TaskData
from kltune.trainer.logprobs import Scoring
from kltune.trainer.lora import AdapterStack
from kltune.trainer.micro_batch import MicroBatch
from kltune.trainer.model import LoadedModel
from kltune.trainer.optimizer import StackedAdamW
from kltune.trainer.rollout import Sampling


@dataclass(frozen=True, slots=True)
class BankSettings:
    """What all trials of a bank share."""

    trainer: TrainerSpec
    evaluate: EvaluateSpec
    kl_unit: KLUnit
    beta_unit: BetaUnit
    scale: RewardScale
    compact: bool
    """Drop empty slots' rows and finished rows (CPU). Off: fixed shapes, neighbours change not one bit."""


@dataclass(frozen=True, slots=True)
class BankParts:
    """The frozen base, the stacked per-slot state, the data and the settings."""

    loaded: LoadedModel
    stack: AdapterStack
    optimizer: StackedAdamW
    data: TaskData
    settings: BankSettings
    micro_batch: MicroBatch

    @property
    def scoring(self) -> Scoring:
        """How rows are scored."""
        return Scoring(self.settings.trainer.temperature, only_valid=self.settings.compact)

    def sampling(self, group_size: int) -> Sampling:
        """How completions are drawn."""
        trainer = self.settings.trainer
        return Sampling(
            group_size, trainer.max_new_tokens, trainer.temperature, self.settings.compact
        )

    def to_device(self, uniforms: list[NDArray[np.float32]]) -> Tensor:
        """Stack each slot's uniforms: ``[K, N, T]``."""
        return torch.from_numpy(np.stack(uniforms)).to(self.loaded.device)
