"""Two distributions in; what each KL estimator and the gradient of each penalty is worth there out.

Everything is an expectation over the policy's answers, enumerated, for one answer as one token
with softmax logits, right after sampling (importance ratio 1). Formulas: kl-reference.md §1.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kltune.explain.distribution import Pair, deviation, kl, log_ratios, mean, unseen
from kltune.spec.penalty import Penalty

_TINY: Final = 1e-12
"""Below this a number is rounding."""
_SAME: Final = 1e-9


def k1(u: float) -> float:
    """The log-ratio itself."""
    return u


def k2(u: float) -> float:
    """Half its square."""
    return u * u / 2


def k3(u: float) -> float:
    """``r - 1 - log r`` with ``r = reference / policy = exp(-u)``."""
    return math.expm1(-u) + u if u > -math.inf else math.inf


ESTIMATORS: Final[Mapping[str, tuple[str, Callable[[float], float]]]] = MappingProxyType(
    {
        "k1": ("u", k1),
        "k2": ("u² / 2", k2),
        "k3": ("exp(-u) - 1 + u", k3),
        "abs": ("|u|", abs),
    }
)
"""Formula for people, function of the log-ratio u."""


@dataclass(frozen=True, slots=True)
class EstimatorFacts:
    """What a sampled estimator gives, against the KL."""

    name: str
    formula: str
    mean: float
    """Expectation, nats."""
    bias: float
    """mean - KL, nats."""
    sd: float
    """Standard deviation of one answer, nats."""
    answers_needed: int | None
    """Answers until the standard error is a tenth of the KL; none where the KL is 0 or infinite."""


@dataclass(frozen=True, slots=True)
class PenaltyFacts:
    """The expected gradient of a penalty, against the gradient of KL(policy ‖ reference)."""

    penalty: Penalty
    gradient: tuple[float, ...]
    """With respect to the softmax logits: what a step against it does."""
    cosine: float | None
    """1: the same direction; -1: away from the reference; none where one of the two is 0."""
    norm_ratio: float | None
    """Its length / that of the KL's gradient; none where the latter is 0."""
    verdict: str
    is_sound: bool
    """Not refused by a spec without ``allow_biased``."""


@dataclass(frozen=True, slots=True)
class EstimatorsFacts:
    """What `explain estimators` shows."""

    policy: tuple[float, ...]
    reference: tuple[float, ...]
    kl: float
    kl_other_way: float
    unseen: float
    """Probability of the reference on answers that the policy never gives: k3 is too low by it."""
    estimators: tuple[EstimatorFacts, ...]
    true_gradient: tuple[float, ...] | None
    """Of KL(policy ‖ reference) with respect to the logits; none where the KL is infinite."""
    penalties: tuple[PenaltyFacts, ...]
    """Empty where the KL is infinite."""


def explain_estimators(pair: Pair) -> EstimatorsFacts:
    """Compute everything of the screen."""
    p, q = pair.policy, pair.reference
    exact = kl(p, q)
    finite = math.isfinite(exact)
    return EstimatorsFacts(
        policy=p,
        reference=q,
        kl=exact,
        kl_other_way=kl(q, p),
        unseen=unseen(p, q),
        estimators=(
            *(_estimator(pair, name, exact) for name in ESTIMATORS),
            EstimatorFacts("exact", "Σ p log(p/q)", exact, 0.0, 0.0, 1 if finite else None),
        ),
        true_gradient=true_gradient(pair) if finite else None,
        penalties=tuple(judge(pair, penalty) for penalty in Penalty) if finite else (),
    )


def true_gradient(pair: Pair) -> tuple[float, ...]:
    """Of KL(policy ‖ reference), with respect to the policy's softmax logits: ``p (u - KL)``."""
    ratios, exact = log_ratios(pair.policy, pair.reference), kl(pair.policy, pair.reference)
    return tuple(
        p * (u - exact) if p > 0 else 0.0 for p, u in zip(pair.policy, ratios, strict=True)
    )


def expected_gradient(pair: Pair, penalty: Penalty) -> tuple[float, ...]:
    """Expectation over the policy's answers of the gradient that a penalty adds to what is minimised.

    In the reward: value of the estimator x score, for a penalty that is subtracted from the
    reward. In the loss: derivative of the term, that through a differentiable ratio included.
    The score of answer y with respect to the logits is ``onehot(y) - p``.
    """
    p, q = pair.policy, pair.reference
    if penalty is Penalty.FORWARD_LOSS:
        return _weighted_scores(p, [-weight for weight in q])
    if penalty is Penalty.JEFFREYS_LOSS:
        parts = (
            expected_gradient(pair, Penalty.EXACT_LOSS),
            expected_gradient(pair, Penalty.FORWARD_LOSS),
        )
        return tuple(a + b for a, b in zip(*parts, strict=True))
    factor = _score_factor(pair, penalty)
    ratios = log_ratios(p, q)
    return _weighted_scores(
        p, [w * factor(u) if w > 0 else 0.0 for w, u in zip(p, ratios, strict=True)]
    )


def judge(pair: Pair, penalty: Penalty) -> PenaltyFacts:
    """Compare a penalty's expected gradient with that of KL(policy ‖ reference)."""
    gradient = expected_gradient(pair, penalty)
    cosine, ratio = alignment(gradient, true_gradient(pair))
    return PenaltyFacts(
        penalty=penalty,
        gradient=gradient,
        cosine=cosine,
        norm_ratio=ratio,
        verdict=_verdict(penalty, cosine, ratio),
        is_sound=penalty.nature.refusal is None,
    )


def alignment(
    gradient: Sequence[float], true: Sequence[float]
) -> tuple[float | None, float | None]:
    """Cosine and ratio of norms; none where there is none."""
    length, true_length = math.hypot(*gradient), math.hypot(*true)
    if true_length < _TINY:
        return None, None
    if length < _TINY:
        return None, 0.0
    dot = math.fsum(a * b for a, b in zip(gradient, true, strict=True))
    return dot / length / true_length, length / true_length


def _estimator(pair: Pair, name: str, exact: float) -> EstimatorFacts:
    formula, value = ESTIMATORS[name]
    values = [value(u) for u in log_ratios(pair.policy, pair.reference)]
    centre, sd = mean(pair.policy, values), deviation(pair.policy, values)
    bias = centre - exact if math.isfinite(exact) else math.nan
    needed = None
    if _TINY < exact < math.inf:
        needed = max(1, math.ceil((sd / (0.1 * exact)) ** 2))
    return EstimatorFacts(name, formula, centre, 0.0 if abs(bias) < _TINY else bias, sd, needed)


def _weighted_scores(p: Sequence[float], weights: Sequence[float]) -> tuple[float, ...]:
    """``Σ_y weight_y (onehot(y) - p)``."""
    total = math.fsum(weights)
    return tuple(weight - chance * total for weight, chance in zip(weights, p, strict=True))


def _score_factor(pair: Pair, penalty: Penalty) -> Callable[[float], float]:
    """What multiplies the score of an answer with log-ratio u."""
    exact = kl(pair.policy, pair.reference)
    factors: dict[Penalty, Callable[[float], float]] = {
        Penalty.K1_REWARD: k1,
        Penalty.K2_REWARD: k2,
        Penalty.K3_REWARD: k3,
        Penalty.ABS_REWARD: abs,
        # The value at a position is the same for each of its tokens.
        Penalty.EXACT_REWARD: lambda _: exact,
        # Derivatives of the estimators in u, which is the policy's log-prob but for a constant.
        Penalty.K1_LOSS: lambda _: 1.0,
        Penalty.K2_LOSS: lambda u: u,
        Penalty.K3_LOSS: lambda u: -math.expm1(-u),
        Penalty.ABS_LOSS: lambda u: math.copysign(1.0, u) if u else 0.0,
        # Times a ratio with gradient: the estimator's value joins.
        Penalty.WK1_LOSS: lambda u: 1.0 + k1(u),
        Penalty.WK3_LOSS: lambda u: -math.expm1(-u) + k3(u),
        # The gradient of k2 by construction.
        Penalty.K3PLUS_LOSS: lambda u: u,
        # d/dtheta of Σ p u; the tail of top-k adds the same factor for its answers. One token has
        # no later one, so exact-full is exact-loss here.
        Penalty.EXACT_LOSS: lambda u: u + 1.0,
        Penalty.EXACT_FULL: lambda u: u + 1.0,
        Penalty.TOPK_LOSS: lambda u: u + 1.0,
    }
    return factors[penalty]


def _verdict(penalty: Penalty, cosine: float | None, ratio: float | None) -> str:
    nature = penalty.nature
    if ratio is None:
        return "nothing to compare: the gradient of the KL is 0"
    if cosine is None:
        return (
            "refused: no pull at all, only noise"
            if penalty is Penalty.K1_LOSS
            else "refused: no pull on its own token"
        )
    if nature.refusal is not None:
        if cosine < 0:
            return "refused: pulls AWAY from the reference"
        return f"refused: {'not the gradient of any KL' if nature.gradient.startswith('none') else nature.gradient}"
    if abs(cosine - 1) < _SAME and abs(ratio - 1) < _SAME:
        return f"right: {nature.gradient}"
    return f"another pull: {nature.gradient}"
