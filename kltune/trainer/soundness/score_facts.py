"""What the probes of proxy and golds find, as plain numbers without a verdict. No torch here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScorerFacts:
    """One scorer on the same completions of the reference."""

    field: str
    """``task.proxy``, ``task.gold`` or ``task.golds.NAME``."""
    name: str
    num_samples: int
    unscored_frac: float
    """Share that it could not score."""
    fault: str | None
    """What it did wrong instead of scoring, in words; the numbers below are None then."""
    mean: float | None
    std: float | None
    """Over all samples."""
    group_std: float | None
    """Mean over prompts of the spread within a prompt's completions (n - 1)."""
    constant_group_frac: float | None
    """Share of prompts whose completions all have the same score."""
    distinct: int | None
    """Different scores."""
    repeats: bool | None
    """Whether a second call gives the same scores."""
    repeat_gap: float | None
    """Largest difference between two calls."""
    seconds_per_call: float | None
    """Of one call on all the samples."""
    raised: bool = False
    """Whether the fault is an exception of the scorer's own, and no wrong result."""
    order_gap: float | None = None
    """Largest difference of a score where the list came in reverse and longer, while the same list gave the same
    scores; 0 where there was none, none where calls don't repeat at all."""
    largest: float | None = None
    """Absolute value of a score."""


@dataclass(frozen=True, slots=True)
class ScorePair:
    """Two scorers on the same completions."""

    proxy: str
    gold: str
    """Their fields."""
    num_samples: int
    """Completions that both scored."""
    identical_frac: float
    """Share of completions to which both give the same number."""
    correlation: float | None
    """Over all; none where one does not vary."""
    group_correlation: float | None
    """Of the deviations from each prompt's mean: what training can see."""
    rank_correlation: float | None = None
    """Spearman's, ties at their mean rank: 1 where both put all completions in one order."""
    distinct: int = 0
    """Different scores of whichever has fewer."""


@dataclass(frozen=True, slots=True)
class ScoringFacts:
    """All scorers."""

    proxy: ScorerFacts
    golds: tuple[ScorerFacts, ...]
    """``task.gold`` first."""
    pairs: tuple[ScorePair, ...]
    """The proxy with each gold that scored, in that order."""
