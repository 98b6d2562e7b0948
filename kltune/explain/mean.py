"""The mean of a logged KL in; whether it is noise of a signed estimator or a fault of the settings out.

What is known without any model of the log-ratio u = log policy - log reference: over answers
drawn from the policy itself, E[exp(-u)] <= 1 (it sums the reference over those answers). By
Markov's inequality the mean of N independent answers is -a or lower with a chance of at most
exp(-N a), whatever the KL. Near the reference u is about normal with variance 2 KL; the KL
that makes a mean of -a likeliest is then a, with a standard error of sqrt(2 a / N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kltune.errors import SpecError
from kltune.explain.distribution import EXAMPLE, deviation, kl, log_ratios
from kltune.explain.flags import at_least_1, finite, one_of, one_or_more
from kltune.explain.kl import answers_for_odds
from kltune.units import kl_per_sequence, kl_per_token

CHANCE: Final = 0.01
"""A mean that is rarer than this, at best, is not called noise."""

DIVERGED: Final = 1.0
"""Nats per token above which a policy has hardly anything in common with its reference."""

TOKENS: Final = 40.0
ROWS: Final = 16


class Reading(StrEnum):
    """What a mean says."""

    NOISE = "noise"
    SETTINGS = "settings"
    ORDINARY = "ordinary"
    DIVERGED = "diverged"
    ZERO = "zero"


@dataclass(frozen=True, slots=True)
class MeanQuestion:
    """A mean as it was logged, and how."""

    mean: float
    """Of the sampled log-ratio (k1), nats per `unit`."""
    unit: str = "sequence"
    tokens: float = TOKENS
    """Mean tokens of an answer."""
    rows: int = ROWS
    """Answers that the mean was taken over."""
    top_k: int | None = None
    """Sampling kept so many tokens; none or 0: all."""
    top_p: float | None = None
    """Sampling kept tokens of so much probability; none or 1: all."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """What truncated sampling does to the mean log-ratio."""

    asked: str
    example_kept: int
    """Likeliest answers of the worked example that are kept."""
    example_kl: float
    example_mean: float
    """Mean log-ratio over the kept answers, nats: not a KL, it can be negative."""
    lowest_token: float | None
    """By top-p alone the mean can't be lower, nats per token (log top_p); none under top-k."""
    lowest_seq: float | None


@dataclass(frozen=True, slots=True)
class MeanFacts:
    """What `explain kl --mean` shows."""

    reading: Reading
    mean_token: float
    """Nats per token."""
    mean_seq: float
    """Nats per sequence."""
    tokens: float
    rows: int
    is_truncated: bool
    chance: float | None
    """At most: of a mean this low or lower, by sampling alone, whatever the KL; none at 0 or above."""
    plausible_rows: int | None
    """Answers up to which that chance stays at `CHANCE` or above."""
    standard_error: float | None
    """That the KL which makes the mean likeliest would have, nats per sequence."""
    errors_below: float | None
    """How many of those the mean lies below that KL."""
    negative_share: float
    """Of the worked example's answers: log-ratio below 0."""
    example_kl: float
    example_sd: float
    answers_for_odds: int | None
    truncation: Truncation


def explain_mean(question: MeanQuestion) -> MeanFacts:
    """Read a mean.

    Raises:
        SpecError: a flag's value makes no sense.
    """
    _check(question)
    is_truncated = bool(question.top_k) or question.top_p not in (None, 1.0)
    per_token = question.unit == "token"
    seq = kl_per_sequence(question.mean, question.tokens) if per_token else question.mean
    token = question.mean if per_token else kl_per_token(question.mean, question.tokens)
    low = -seq if seq < 0 else None
    chance = None if low is None else math.exp(-question.rows * low)
    ratios = log_ratios(EXAMPLE.policy, EXAMPLE.reference)
    return MeanFacts(
        reading=_reading(seq, token, chance, is_truncated),
        mean_token=token,
        mean_seq=seq,
        tokens=question.tokens,
        rows=question.rows,
        is_truncated=is_truncated,
        chance=chance,
        plausible_rows=None if low is None else math.floor(min(-math.log(CHANCE) / low, 1e9)),
        standard_error=None if low is None else math.sqrt(2 * low / question.rows),
        errors_below=None if low is None else math.sqrt(2 * low * question.rows),
        negative_share=math.fsum(p for p, u in zip(EXAMPLE.policy, ratios, strict=True) if u < 0),
        example_kl=kl(EXAMPLE.policy, EXAMPLE.reference),
        example_sd=deviation(EXAMPLE.policy, ratios),
        answers_for_odds=answers_for_odds(seq),
        truncation=_truncation(question),
    )


def truncated_mean(kept: int) -> float:
    """Mean log-ratio of the worked example where only the policy's ``kept`` likeliest answers are sampled."""
    likeliest = sorted(
        zip(EXAMPLE.policy, log_ratios(EXAMPLE.policy, EXAMPLE.reference), strict=True),
        reverse=True,
    )[:kept]
    return math.fsum(p * u for p, u in likeliest) / math.fsum(p for p, _ in likeliest)


def _truncation(question: MeanQuestion) -> Truncation:
    # The setting that lowers the mean most, greedy (1) left out.
    kept = min(range(2, len(EXAMPLE.policy)), key=truncated_mean)
    asked = [f"top-k {question.top_k}"] if question.top_k else []
    asked += [f"top-p {question.top_p:g}"] if question.top_p not in (None, 1.0) else []
    is_bounded = question.top_p is not None and not question.top_k
    lowest = math.log(question.top_p) if is_bounded and question.top_p else None
    return Truncation(
        asked=" and ".join(asked),
        example_kept=kept,
        example_kl=kl(EXAMPLE.policy, EXAMPLE.reference),
        example_mean=truncated_mean(kept),
        lowest_token=lowest,
        lowest_seq=None if lowest is None else kl_per_sequence(lowest, question.tokens),
    )


def _reading(seq: float, token: float, chance: float | None, is_truncated: bool) -> Reading:
    if is_truncated:
        return Reading.SETTINGS
    if chance is not None:
        return Reading.NOISE if chance >= CHANCE else Reading.SETTINGS
    if seq == 0:
        return Reading.ZERO
    return Reading.DIVERGED if token > DIVERGED else Reading.ORDINARY


def _check(question: MeanQuestion) -> None:
    finite("--mean", question.mean)
    one_of("--unit", question.unit, ("token", "sequence"))
    one_or_more("--tokens", question.tokens)
    at_least_1("--rows", question.rows)
    if question.top_k is not None and question.top_k < 0:
        raise SpecError(f"--top-k: must be 1 or more, or 0 for off (got {question.top_k})")
    if question.top_p is not None and not 0 < question.top_p <= 1:
        raise SpecError(f"--top-p: must be above 0 and at most 1 (got {question.top_p:g})")
