"""What crosses from one phase of a step to the next. Shapes: K active slots, N sequences, T tokens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kltune.trainer.advantage import Advantages
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.loss import LossTerms
from kltune.trainer.rollout import Rollout
from kltune.trainer.slot import SlotState


@dataclass(frozen=True, slots=True)
class Batch:
    """What the update learns from: one rollout of every active slot."""

    slots: tuple[int, ...]
    states: tuple[SlotState, ...]
    rollout: Rollout
    proxy_KN: Tensor


@dataclass(slots=True)
class UpdateResult:
    """What the update pass measured, before any optimiser step."""

    logprobs: Logprobs
    """Detached, of the whole batch, by the weights of the rollout."""
    advantages: list[Advantages]
    terms: list[list[LossTerms]]
    """Per slot, one per micro-batch."""


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """The end of a slot's step."""

    row: int
    step: int
    beta: float
    """Used in this step."""
    coefficient: float
    beta_next: float
    grad_norm: float
    nonfinite_tokens: int
    is_finite: bool
    kl_token: float
    kl_seq: float
