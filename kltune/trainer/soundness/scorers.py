"""Completions and scorers in, what their scores are like out: finite, spread, repeatable, different from each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from time import perf_counter

from scipy.stats import rankdata

from kltune.errors import TrialFault
from kltune.tasks.protocol import Sample, Scorer
from kltune.tasks.scorers import ScorerError
from kltune.trainer.score import score_samples
from kltune.trainer.soundness.score_facts import ScorePair, ScorerFacts, ScoringFacts


@dataclass(frozen=True, slots=True)
class _Scored:
    facts: ScorerFacts
    scores: tuple[float, ...] | None
    """One per completion, NaN where it could not be scored; none after a fault."""


def scoring_facts(
    samples: Sequence[Sample], group_size: int, proxy: Scorer, golds: Mapping[str, Scorer]
) -> ScoringFacts:
    """``samples``: whole groups, one after another. ``golds`` by field, ``task.gold`` first.

    Each scorer is called twice, the second time with the list reversed and its first group added, and a third time
    where that made a difference.
    """
    judged = _score("task.proxy", proxy, samples, group_size, may_skip=True)
    others = [_score(field, g, samples, group_size, may_skip=False) for field, g in golds.items()]
    pairs = [
        _pair((judged.facts.field, judged.scores), (other.facts.field, other.scores), group_size)
        for other in others
        if judged.scores is not None and other.scores is not None
    ]
    return ScoringFacts(judged.facts, tuple(other.facts for other in others), tuple(pairs))


def _score(
    field: str, scorer: Scorer, samples: Sequence[Sample], group_size: int, *, may_skip: bool
) -> _Scored:
    name = scorer.name
    try:
        start = perf_counter()
        first = score_samples(scorer, samples, slot=-1, may_skip=may_skip)
        seconds = perf_counter() - start
        again = [*reversed(samples), *samples[:group_size]]
        other = score_samples(scorer, again, slot=-1, may_skip=may_skip)[: len(samples)][::-1]
        is_same = all(map(_same, first, other))
        # What the order makes is told from noise by the very same list.
        second = first if is_same else score_samples(scorer, samples, slot=-1, may_skip=may_skip)
    except TrialFault as fault:
        nothing = ScorerFacts(
            field, name, len(samples), 0.0, str(fault),
            None, None, None, None, None, None, None, None, raised=_raised(fault),
        )  # fmt: skip
        return _Scored(nothing, None)
    known = [value for value in first if not math.isnan(value)]
    groups = [_known(first[i : i + group_size]) for i in range(0, len(first), group_size)]
    wide = [group for group in groups if len(group) > 1]
    repeats = all(map(_same, first, second))
    facts = ScorerFacts(
        field=field,
        name=name,
        num_samples=len(samples),
        unscored_frac=1 - len(known) / len(first),
        fault=None,
        mean=fmean(known),
        std=stdev(known) if len(known) > 1 else None,
        group_std=fmean(map(stdev, wide)) if wide else None,
        constant_group_frac=fmean(len(set(group)) == 1 for group in wide) if wide else None,
        distinct=len(set(known)),
        repeats=repeats,
        repeat_gap=_largest_gap(first, second),
        seconds_per_call=seconds,
        order_gap=_largest_gap(first, other) if repeats else None,
        largest=max(map(abs, known)),
    )
    return _Scored(facts, tuple(first))


def _pair(
    proxy: tuple[str, Sequence[float]], gold: tuple[str, Sequence[float]], group_size: int
) -> ScorePair:
    """From field and scores of each."""
    both = [
        (i // group_size, a, b)
        for i, (a, b) in enumerate(zip(proxy[1], gold[1], strict=True))
        if not math.isnan(a) and not math.isnan(b)
    ]
    ones, others = [a for _, a, _ in both], [b for _, _, b in both]
    groups = [group for group, _, _ in both]
    return ScorePair(
        proxy=proxy[0],
        gold=gold[0],
        num_samples=len(both),
        identical_frac=fmean(a == b for _, a, b in both) if both else 0.0,
        correlation=_correlation(ones, others),
        group_correlation=_correlation(_centred(ones, groups), _centred(others, groups)),
        rank_correlation=_correlation(_ranks(ones), _ranks(others)),
        distinct=min(len(set(ones)), len(set(others))),
    )


def _centred(values: Sequence[float], groups: Sequence[int]) -> list[float]:
    """Less the mean of the group."""
    members: dict[int, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        members.setdefault(group, []).append(value)
    means = {group: fmean(held) for group, held in members.items()}
    pairs = [(value, means[group]) for value, group in zip(values, groups, strict=True)]
    # The mean of equal numbers may be their neighbour: that is rounding, not spread.
    return [
        0.0 if math.isclose(value, mean, rel_tol=1e-12) else value - mean for value, mean in pairs
    ]


def _correlation(ones: Sequence[float], others: Sequence[float]) -> float | None:
    """Pearson's; none where one of them does not vary."""
    if len(ones) < 2:
        return None
    a, b = _centred(ones, [0] * len(ones)), _centred(others, [0] * len(others))
    size = math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))
    if size == 0:
        return None
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / size


def _ranks(values: Sequence[float]) -> list[float]:
    """Equal values at the mean of their places."""
    return [float(rank) for rank in rankdata(values)]


def _raised(fault: TrialFault) -> bool:
    """Whether the scorer raised; what it returned is not at fault then."""
    return fault.__cause__ is not None and type(fault.__cause__) is not ScorerError


def _known(scores: Sequence[float]) -> list[float]:
    return [value for value in scores if not math.isnan(value)]


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _largest_gap(first: Sequence[float], second: Sequence[float]) -> float:
    gaps = [abs(a - b) for a, b in zip(first, second, strict=True)]
    return max((gap for gap in gaps if not math.isnan(gap)), default=0.0)
