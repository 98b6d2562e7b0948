"""What was measured: plain numbers that cross from the trainer to everything else. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenProfile:
    """Exact KL by place in the completion, of one rollout or evaluation; bucket b covers tokens edges[b] to edges[b + 1] - 1."""

    edges: tuple[int, ...]
    """Positions from the completion's first token (0); one more than there are buckets."""
    kl: tuple[float, ...]
    """Mean exact KL(policy || start) of the bucket's valid tokens, nats per token; 0 where there is none."""
    tokens: tuple[int, ...]
    """Valid tokens of the bucket."""


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """What one slot measured in one step (one rollout and its update)."""

    slot: int
    trial_number: int
    step: int
    """Steps done including this one; the first is 1."""
    kl_token: float
    """Exact KL(policy || start), nats per token, of this step's rollout (before its update); the start is the
    reference, unless ``trainer.reference`` lets that follow the policy."""
    kl_seq: float
    """The same in nats per sequence."""
    proxy: float
    """Mean training reward of the rollout, before any KL."""
    beta: float
    """Coefficient used in this step, in the study's beta_unit."""
    tokens: int
    """Valid completion tokens in the rollout."""
    is_finite: bool
    """False when a valid token, the loss or a gradient was not finite: the slot's weights were left as they
    were before the step."""
    values: Mapping[str, float]
    """Every metric of the step by its registered name (kltune.metrics.names); may hold non-finite numbers."""
    profile: TokenProfile | None = None
    """Where in the completions the KL lies; none where it was not measured."""
    score_errors: tuple[str, ...] = ()
    """Completions that count as unscored since the proxy failed on them (``task.errors``), one sentence each."""


@dataclass(frozen=True, slots=True)
class EvalSample:
    """One completion that an evaluation keeps to show."""

    prompt_id: str
    prompt: str
    completion: str
    gold: float
    proxy: float
    kl_seq: float
    """Sum of the exact per-position KL over the completion, nats."""
    num_tokens: int
    ended: bool
    golds: Mapping[str, float] = field(default_factory=dict[str, float])
    """What the golds beside the objective's say, by name."""


@dataclass(frozen=True, slots=True)
class TokenOutlier:
    """A token at which the policy has moved far from its start, with the text around it."""

    prompt_id: str
    position: int
    """In the completion; its first token is 0."""
    token: str
    """Text of the sampled token, special tokens included."""
    before: str
    """Text of the few tokens before it in the completion."""
    after: str
    """And after it."""
    kl: float
    """Exact KL(policy || start) of the next-token distribution there, nats."""
    policy_logprob: float
    """Of the sampled token, nats."""
    reference_logprob: float
    """The start's, nats."""


@dataclass(frozen=True, slots=True)
class OtherGold:
    """What a gold beside the objective's says of one slot at one step, in its own unit."""

    mean: float
    se: float
    """Standard error over prompts (samples of a prompt are averaged first)."""
    by_prompt: tuple[float, ...]
    """Mean of each prompt, in the order of the select split."""


@dataclass(frozen=True, slots=True)
class EvalMetrics:
    """What one slot is worth at one step, on prompts that it does not train on."""

    slot: int
    trial_number: int
    step: int
    gold: float
    gold_se: float
    """Standard error over prompts (samples of a prompt are averaged first)."""
    proxy: float
    proxy_se: float
    kl_token: float
    kl_seq: float
    gold_by_prompt: tuple[float, ...]
    """Mean gold of each prompt, in the order of the select split."""
    proxy_by_prompt: tuple[float, ...]
    values: Mapping[str, float]
    """Every metric of the evaluation by its registered name."""
    samples: tuple[EvalSample, ...]
    others: Mapping[str, OtherGold] = field(default_factory=dict[str, OtherGold])
    """The golds beside the objective's, by name, of the same completions."""
    outliers: tuple[TokenOutlier, ...] = ()
    """The tokens with the largest exact KL, largest first."""
    score_errors: tuple[str, ...] = ()
    """Completions that the proxy failed on and that count as unscored, one sentence each."""


@dataclass(frozen=True, slots=True)
class RewardScale:
    """How the proxy spreads under the reference: sigma_R within a group, and over all completions."""

    sigma: float
    """Mean over groups of the within-group standard deviation (n - 1)."""
    std: float
    """Standard deviation (n - 1) of the proxy over all of the reference's completions."""
    mean: float
    """Mean proxy under the reference."""
    num_groups: int
    mean_tokens: float
    """Mean completion length under the reference, in tokens."""
