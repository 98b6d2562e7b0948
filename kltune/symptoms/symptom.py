"""What a rule found: which symptom, since when, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class SymptomKind(StrEnum):
    """Everything that the rules can see."""

    NON_FINITE = "non_finite"
    KL_LIMIT = "kl_limit"
    KL_JUMP = "kl_jump"
    NEGATIVE_KL = "negative_kl"
    STALLED = "stalled"
    PSEUDO_EXPLOSION = "pseudo_explosion"
    GOLD_DROP = "gold_drop"
    ENTROPY_COLLAPSE = "entropy_collapse"
    REPETITION = "repetition"
    LENGTH_COLLAPSE = "length_collapse"
    LENGTH_GROWTH = "length_growth"
    TRUNCATION = "truncation"
    LOCAL_KL = "local_kl"
    PROXY_SPREAD = "proxy_spread"


@dataclass(frozen=True, slots=True)
class Symptom:
    """One finding."""

    kind: SymptomKind
    first_step: int
    """Where it began."""
    last_step: int
    """The step at which it was judged."""
    detail: str
    """One sentence with numbers, units and steps; the same in log, tag and report."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    """The evidence, by plain names with units (``kl_token``, ``limit``, ``steps``)."""
    cause: str = ""
    """Of several possible causes the one that the numbers speak for, e.g. ``no group spread``; empty: not told."""
