"""One step of one trial, taken apart: ids, log-probs, advantages and what each update's loss was made of.

Plain numbers that cross from the trainer to whoever shows them; as it stands in trace.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final

ROLLOUT_COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "policy": "log-prob of the token under the policy that drew it, by the trainer's pass, nats",
        "reference": "log-prob of the token under the reference in force, nats",
        "sampler": "log-prob of the token by the decode loop that drew it, nats",
        "exact_kl": "KL(policy || reference) of the whole next-token distribution, nats",
        "forward_kl": "KL(reference || policy) of the same, nats",
        "top_k_kl": "part of exact_kl that the policy's likeliest tokens make up, nats",
        "in_top_k": "1 where the token is one of these",
        "start_kl": "exact KL(policy || start), nats: the monitor, where the reference moves",
        "entropy": "entropy of the policy's next-token distribution, nats",
        "advantage": "what the policy gradient weighs the token by",
        "value": "the critic's value before the step",
        "return": "what the critic learns",
    }
)
"""Per valid token of a completion, as the step's rollout was measured."""

UPDATE_COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "logprob": "log-prob of the token under the policy at this update, nats",
        "exact_kl": "KL(policy || reference) at this update, nats; where the penalty needs it",
        "forward_kl": "KL(reference || policy) at this update, nats; where the penalty needs it",
        "top_k_kl": "part of exact_kl of the policy's likeliest tokens at this update, nats",
        "in_top_k": "1 where the token is one of these",
        "entropy": "entropy of the policy at this update, nats; where there is a bonus for it",
    }
)
"""Per valid token of a completion in an update."""

Columns = Mapping[str, tuple[float, ...]]
"""Numbers per valid token, by the names above."""


@dataclass(frozen=True, slots=True)
class TracedCompletion:
    """One row of the rollout."""

    row: int
    """From 0; rows of a prompt follow each other."""
    prompt_id: str
    prompt: str
    prompt_ids: tuple[int, ...]
    """Without padding."""
    completion: str
    completion_ids: tuple[int, ...]
    """All positions: padding after the first stop token."""
    mask: tuple[int, ...]
    """1 up to and including the first stop token."""
    token_texts: tuple[str, ...]
    """Of the valid tokens, special ones too."""
    ended: bool
    """Whether a stop token came before the length limit."""
    proxy: float | None
    """Raw score; none where the proxy could not judge."""
    score: float
    """What is paid for it: (proxy - score_shift) x score_factor, clipped; 0 where unscored."""
    reward: float
    """Score less the KL paid in the reward; 0 where unscored."""
    columns: Columns

    @property
    def num_tokens(self) -> int:
        """Valid tokens."""
        return sum(self.mask)


@dataclass(frozen=True, slots=True)
class TracedRow:
    """A completion in an update."""

    row: int
    """Which of the rollout's."""
    weight: float
    """Of each of its valid tokens in the loss."""
    columns: Columns


@dataclass(frozen=True, slots=True)
class TracedUpdate:
    """One optimiser update."""

    loss: float
    """loss_policy + loss_kl - loss_entropy, without the critic's."""
    loss_policy: float
    loss_kl: float
    loss_entropy: float
    grad_norm: float | None
    """Before the clip; none where the update was not applied."""
    rows: tuple[TracedRow, ...]


@dataclass(frozen=True, slots=True)
class StepTrace:
    """The whole step."""

    trial: int
    step: int
    """Steps done including this one; the first is 1."""
    rules: Mapping[str, Any]
    """Settings that the numbers follow from, by plain names."""
    completions: tuple[TracedCompletion, ...]
    updates: tuple[TracedUpdate, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "trial": self.trial,
            "step": self.step,
            "rules": dict(self.rules),
            "columns": {"completions": dict(ROLLOUT_COLUMNS), "updates": dict(UPDATE_COLUMNS)},
            "completions": [asdict(completion) for completion in self.completions],
            "updates": [asdict(update) for update in self.updates],
        }
