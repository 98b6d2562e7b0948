"""What crosses from one phase of a step to the next. Shapes: K active slots, N sequences, T tokens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

from kltune.tasks.scorers import Scores
from kltune.trainer.advantage import Advantages
from kltune.trainer.controller import ControlState
from kltune.trainer.logprobs import Hidden, Logprobs
from kltune.trainer.loss import LossTerms
from kltune.trainer.prices import Prices
from kltune.trainer.rollout import Rollout
from kltune.trainer.shaping import Shaped
from kltune.trainer.slot import SlotState


@dataclass(frozen=True, slots=True)
class Batch:
    """What the update learns from: one rollout of every active slot."""

    slots: tuple[int, ...]
    states: tuple[SlotState, ...]
    rollout: Rollout
    proxy_KN: Tensor
    """Raw scores; NaN where the proxy could not judge."""
    shaped: tuple[Shaped, ...]
    """What is paid for them, one per slot."""
    judged: tuple[Scores, ...] = ()
    """All that the proxy said, one per slot."""

    def only(self, row: int, *, compact: bool = False) -> Batch:
        """The same of one slot; ``compact``: as wide as its own longest completion."""
        one = slice(row, row + 1)
        return Batch(
            self.slots[one],
            self.states[one],
            self.rollout.only(row, compact=compact),
            self.proxy_KN[one],
            self.shaped[one],
            self.judged[one],
        )

    def between(self, first: int, end: int) -> Batch:
        """Rows ``first`` to ``end`` - 1 of every slot."""
        return Batch(
            self.slots,
            self.states,
            self.rollout.between(first, end),
            self.proxy_KN[:, first:end],
            tuple(
                replace(
                    one,
                    score_N=one.score_N[first:end],
                    is_scored_N=one.is_scored_N[first:end],
                )
                for one in self.shaped
            ),
            self.judged,
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """The whole rollout by the weights that drew it, without gradients."""

    logprobs: Logprobs
    """Policy against the reference in force."""
    reference: Hidden
    """Of the reference in force, so that later passes need not repeat its forward."""
    start_kl_KNT: Tensor
    """Exact KL(policy || start): the monitor. The start is the reference, unless that moves."""
    values_KNT: Tensor | None
    """The critic's; none but under ppo."""


@dataclass(frozen=True, slots=True)
class Credit:
    """What one slot's tokens are worth."""

    advantages: Advantages
    returns_NT: Tensor | None
    """What the critic learns; none but under ppo."""
    prices: Prices
    kl_clipped_tokens: int
    """Tokens whose KL in the reward met ``kl.clip``."""
    cost_NT: Tensor | None = None
    """Price x KL of each token as the reward pays it, in shaped reward; none where it pays none."""


@dataclass(slots=True)
class SlotUpdates:
    """What one slot's optimiser updates measured."""

    is_finite: bool
    """False from the first update on whose loss or gradient was not finite; nothing was applied from there."""
    terms: list[list[LossTerms]] = field(default_factory=list[list[LossTerms]])
    """Per update, one per micro-batch."""
    norms: list[float] = field(default_factory=list[float])
    value_losses: list[float] = field(default_factory=list[float])


@dataclass(frozen=True, slots=True)
class Learned:
    """A finished update phase."""

    measured: Measured
    credits: list[Credit]
    updates: list[SlotUpdates]


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """The end of a slot's step."""

    row: int
    step: int
    used: ControlState
    """The controller's state in this step."""
    control: ControlState
    """And for the next."""
    nonfinite_tokens: int
    is_finite: bool
    kl_token: float
    """Exact, to the start."""
    kl_seq: float
    anchor_kl_token: float
    """Exact, to the reference in force."""
    anchor_kl_seq: float
