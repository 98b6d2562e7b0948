"""Probabilities of a few answers in, their KL and what it is made of out. All in nats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kltune.errors import SpecError

SUM_TOLERANCE: Final = 1e-6
"""How far the probabilities of a distribution may be from 1 in sum."""


@dataclass(frozen=True, slots=True)
class Pair:
    """How often policy and reference give each of the same answers."""

    policy: tuple[float, ...]
    reference: tuple[float, ...]
    is_example: bool = False
    """The worked example, not a person's own numbers."""

    @property
    def names(self) -> tuple[str, ...]:
        """A, B, C, ...; numbers where the alphabet ends."""
        return tuple(answer_name(place) for place in range(len(self.policy)))


EXAMPLE: Final = Pair(
    policy=(0.30, 0.25, 0.15, 0.22, 0.08),
    reference=(0.40, 0.25, 0.15, 0.12, 0.08),
    is_example=True,
)
"""Five answers to one question. Training made D likelier and A rarer."""


def answer_name(place: int) -> str:
    """The name of the answer at ``place``, from 0."""
    return chr(ord("A") + place) if place < 26 else f"#{place + 1}"


def read_pair(policy: str | None, reference: str | None) -> Pair:
    """The pair that a person typed, or the worked example where they typed none.

    Each text holds numbers separated by commas.

    Raises:
        SpecError: one of the two alone, no numbers, unequal lengths, or no distribution.
    """
    if policy is None and reference is None:
        return EXAMPLE
    if policy is None or reference is None:
        given, absent = (
            ("--policy", "--reference") if reference is None else ("--reference", "--policy")
        )
        raise SpecError(f"{absent}: must be given together with {given} (got none)")
    p, q = _probabilities("--policy", policy), _probabilities("--reference", reference)
    if len(p) != len(q):
        raise SpecError(
            f"--reference: must have as many probabilities as --policy, {len(p)} (got {len(q)})"
        )
    return Pair(p, q)


def log_ratios(policy: Sequence[float], reference: Sequence[float]) -> tuple[float, ...]:
    """``log policy - log reference`` of every answer: infinite where one of them is 0, 0 where both are."""
    return tuple(_log_ratio(p, q) for p, q in zip(policy, reference, strict=True))


def kl(policy: Sequence[float], reference: Sequence[float]) -> float:
    """KL(policy ‖ reference): the mean log-ratio over the policy's own answers.

    An answer that the policy never gives counts 0, whatever the reference says. One that
    only the policy gives makes it infinite.
    """
    return math.fsum(contributions(policy, reference))


def contributions(policy: Sequence[float], reference: Sequence[float]) -> tuple[float, ...]:
    """``policy x log-ratio`` of every answer; their sum is the KL."""
    ratios = log_ratios(policy, reference)
    return tuple(p * u if p > 0 else 0.0 for p, u in zip(policy, ratios, strict=True))


def mean(policy: Sequence[float], values: Sequence[float]) -> float:
    """Expectation of one value an answer, over the answers that the policy gives."""
    return math.fsum(p * v for p, v in zip(policy, values, strict=True) if p > 0)


def deviation(policy: Sequence[float], values: Sequence[float]) -> float:
    """Standard deviation of one value an answer, over the policy's answers; infinite with the mean."""
    centre = mean(policy, values)
    if not math.isfinite(centre):
        return math.inf
    return math.sqrt(mean(policy, [(v - centre) ** 2 if math.isfinite(v) else 0 for v in values]))


def unseen(policy: Sequence[float], reference: Sequence[float]) -> float:
    """Probability that the reference gives to answers that the policy never gives.

    By so much the mean of k3 over the policy's answers is below the KL: the mean of ``reference / policy``
    over them is 1 - unseen.
    """
    return math.fsum(q for p, q in zip(policy, reference, strict=True) if p == 0)


def _log_ratio(p: float, q: float) -> float:
    if p == q:
        return 0.0
    if p == 0:
        return -math.inf
    return math.inf if q == 0 else math.log(p) - math.log(q)


def _probabilities(flag: str, text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SpecError(
            f"{flag}: must be numbers separated by commas, like .3,.7 (got {text!r})"
        ) from None
    if len(values) < 2:
        raise SpecError(f"{flag}: must have at least 2 probabilities (got {len(values)})")
    for value in values:
        if not 0 <= value <= 1:
            raise SpecError(f"{flag}: every probability must be from 0 to 1 (got {value:g})")
    total = math.fsum(values)
    if abs(total - 1) > SUM_TOLERANCE:
        raise SpecError(
            f"{flag}: the probabilities must sum to 1 within {SUM_TOLERANCE:g} (got {total:.9g})"
        )
    return values
