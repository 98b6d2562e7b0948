"""Everything an audit found, as values; and the same as one strict JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from kltune.audit.estimators import EstimatorRow
from kltune.audit.statistics import Alignment, Estimate
from kltune.audit.verdict import Verdict
from kltune.frameworks.survey import FrameworkLog
from kltune.spec.penalty import Penalty

FORWARD: Final = (
    "KL(reference || policy) of the next token, exact at the policy's own prefixes (as metric "
    "kl/forward_token); not per token of completions that the reference draws"
)
"""What ``forward_token`` is, for readers of the JSON."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What was compared with what, on what."""

    policy: str
    reference: str
    prompts: str
    num_prompts: int
    """Different prompts."""
    num_completions: int
    mean_tokens: float
    """Valid tokens per completion."""
    temperature: float
    num_blocks: int
    is_enumerated: bool
    """Every completion of every prompt, weighted by its probability: no sampling error."""
    num_parameters: int
    """Trainable parameters that the gradients are of."""


@dataclass(frozen=True, slots=True)
class Divergences:
    """KL in both units and both directions, exact at every sampled position."""

    kl_token: Estimate
    """KL(policy || reference), nats per token."""
    kl_seq: Estimate
    """KL(policy || reference), nats per sequence."""
    forward_token: Estimate
    """KL(reference || policy) at the policy's own prefixes (kl/forward_token), nats per token."""


@dataclass(frozen=True, slots=True)
class PenaltyRow:
    """One penalty's expected gradient."""

    penalty: Penalty
    full: Alignment
    """Beside the gradient of the whole sequence's KL."""
    local: Alignment
    """Beside its token-local part."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Norms:
    """Policy gradient beside KL gradient, both per completion (sum over tokens)."""

    algorithm: str
    policy: Estimate | None
    """Length of the policy gradient; none: not told from noise."""
    kl: Estimate | None
    """Length of the sequence KL's gradient at a coefficient of 1."""
    local: Estimate | None
    """Length of its token-local part."""
    setting: str
    """Whose beta is meant."""
    beta: float
    """The setting's, in the study's beta unit."""
    coefficient: float
    """What that is beside this algorithm's advantages."""

    @property
    def ratio(self) -> float | None:
        """KL gradient at the setting's coefficient over the policy gradient."""
        if self.policy is None or self.kl is None:
            return None
        return self.coefficient * self.kl.value / self.policy.value

    @property
    def balance(self) -> float | None:
        """The coefficient at which both are equally long."""
        if self.policy is None or self.kl is None:
            return None
        return self.policy.value / self.kl.value


@dataclass(frozen=True, slots=True)
class AuditResult:
    """An audit."""

    pair: Pair
    divergences: Divergences
    estimators: tuple[EstimatorRow, ...]
    penalties: tuple[PenaltyRow, ...]
    norms: Norms
    frameworks: tuple[FrameworkLog, ...]
    seconds: float
    notes: tuple[str, ...] = ()

    def as_json(self) -> Mapping[str, object]:
        """Plain values for :func:`kltune.metrics.jsonl.encode`; units are in the keys."""
        norms = self.norms
        return {
            "pair": asdict(self.pair),
            "kl": {
                "token_nats": asdict(self.divergences.kl_token),
                "sequence_nats": asdict(self.divergences.kl_seq),
                "forward_token_nats": {
                    **asdict(self.divergences.forward_token),
                    "definition": FORWARD,
                },
            },
            "estimators": [asdict(row) for row in self.estimators],
            "penalties": [_penalty_json(row) for row in self.penalties],
            "norms": {**asdict(norms), "ratio": norms.ratio, "balance": norms.balance},
            "frameworks": [
                {
                    "framework": log.framework,
                    "setting": log.setting,
                    "metric": log.metric,
                    **asdict(log.logged),
                }
                for log in self.frameworks
            ],
            "seconds": self.seconds,
            "notes": list(self.notes),
        }


def _penalty_json(row: PenaltyRow) -> dict[str, object]:
    return {
        "penalty": row.penalty.value,
        "theory": row.penalty.nature.gradient,
        "sequence_full": asdict(row.full),
        "token_local": asdict(row.local),
        "verdict": row.verdict.kind.value,
        "words": row.verdict.text,
    }
