"""A trial's folder in, where in the completions its KL lay out: by position, by quantile, by part of the gradient."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kltune.metrics.record import TokenProfile
from kltune.report.rows import TrialRow
from kltune.trial.record import read_outliers, read_profiles, read_trial

NAN = math.nan
WINDOW = 5
"""Steps that are averaged where one step's tokens are too few to see a profile."""
MOST_OUTLIERS = 6
"""Outlier tokens shown of one evaluation."""

Points = tuple[tuple[int, float], ...]
"""(step, value), finite ones."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A part of the training: a few steps around one that matters."""

    name: str
    first_step: int
    last_step: int
    profile: TokenProfile
    """Mean over the steps, each token counting the same."""

    @property
    def words(self) -> str:
        """The name with its steps."""
        if self.first_step == self.last_step:
            return f"{self.name} (step {self.first_step})"
        return f"{self.name} (steps {self.first_step} to {self.last_step})"


@dataclass(frozen=True, slots=True)
class TokenEvidence:
    """What one trial recorded of its tokens; whatever was not recorded is empty."""

    row: TrialRow
    profiles: Mapping[int, TokenProfile]
    """By step."""
    quantiles: Mapping[str, Points]
    """Of the steps' tokens: mean, p50, p95, p99, max, exact KL in nats per token."""
    step_correlation: Points
    """Of a completion's KL and its proxy, over the rollout of a step."""
    proxy_correlation: Points
    """The same at the evaluations."""
    gold_correlation: Points
    """Of a completion's KL and its gold, at the evaluations."""
    grad_share: Points
    """The KL's share of the gradient."""
    loss_share: Points
    """|KL loss| / (|policy loss| + |KL loss|); empty where no KL stands in the loss."""

    @property
    def is_empty(self) -> bool:
        """Whether the record says nothing of where the KL lies."""
        return not self.profiles

    def moments(self) -> tuple[Moment, ...]:
        """Start, peak and end of the training; where steps are shared, the later name stands."""
        steps = sorted(self.profiles)
        if not steps:
            return ()
        peak = self.row.peak
        wanted = [("start", steps[0])]
        if peak is not None and peak.step > 0:
            wanted.append(("peak of gold", peak.step))
        wanted.append(("end", steps[-1]))
        found: dict[tuple[int, int], Moment] = {}
        for name, step in wanted:
            near = _around(steps, step)
            profile = pooled([self.profiles[s] for s in near])
            found[near[0], near[-1]] = Moment(name, near[0], near[-1], profile)
        return tuple(found.values())

    def outliers(self) -> tuple[tuple[str, int, tuple[Mapping[str, Any], ...]], ...]:
        """(name, step, rows) of the evaluations at the peak and at the end, each step once."""
        peak, final = self.row.peak, self.row.final
        named: dict[int, str] = {}
        for name, point in (("peak", peak), ("end", final)):
            if point is not None and point.step > 0:
                held = named.get(point.step)
                named[point.step] = name if held is None else f"{held} and {name}"
        listed = (
            (name, step, tuple(read_outliers(self.row.folder, step)[:MOST_OUTLIERS]))
            for step, name in named.items()
        )
        return tuple(entry for entry in listed if entry[2])


def read_tokens(row: TrialRow) -> TokenEvidence:
    """Read what the trial's folder says of its tokens."""
    record = read_trial(row.folder)
    steps, evals = record.steps, record.evals
    names = {
        "mean": "kl/exact_token",
        "p50": "kl/exact_p50_token",
        "p95": "kl/exact_p95_token",
        "p99": "kl/exact_p99_token",
        "max": "kl/exact_max_token",
    }
    has_kl_loss = any(row.get("train/loss_kl") for row in steps)
    return TokenEvidence(
        row=row,
        profiles=read_profiles(row.folder, record.events),
        quantiles={label: _points(steps, name) for label, name in names.items()},
        step_correlation=_points(steps, "train/kl_proxy_corr"),
        proxy_correlation=_points(evals, "eval/kl_proxy_corr"),
        gold_correlation=_points(evals, "eval/kl_gold_corr"),
        grad_share=_points(steps, "train/grad_kl_share"),
        loss_share=_loss_share(steps) if has_kl_loss else (),
    )


def pooled(profiles: Sequence[TokenProfile]) -> TokenProfile:
    """One profile of several with the same edges: tokens added, KL averaged over tokens.

    Where edges differ (no study's do), the last one's alone.
    """
    last = profiles[-1]
    same = [profile for profile in profiles if profile.edges == last.edges]
    tokens = tuple(sum(column) for column in zip(*(p.tokens for p in same), strict=True))
    totals = (
        sum(kl * count for kl, count in column if count)
        for column in zip(*(zip(p.kl, p.tokens, strict=True) for p in same), strict=True)
    )
    kl = tuple(t / count if count else 0.0 for t, count in zip(totals, tokens, strict=True))
    return TokenProfile(last.edges, kl, tokens)


def half_of_kl(profile: TokenProfile) -> tuple[int, float] | None:
    """(n, share of tokens): the first n positions hold half of all KL; none where there is no KL.

    n is an edge of a bucket, so a little more than half lies below it.
    """
    sums = [kl * count for kl, count in zip(profile.kl, profile.tokens, strict=True)]
    total, tokens = sum(sums), sum(profile.tokens)
    if not math.isfinite(total) or total <= 0:
        return None
    reached = itertools.accumulate(sums)
    bucket = next((i for i, part in enumerate(reached) if part >= total / 2), len(sums) - 1)
    return profile.edges[bucket + 1], sum(profile.tokens[: bucket + 1]) / tokens


def densest(profile: TokenProfile, fewest: int) -> int | None:
    """The bucket with the largest KL per token, of those with at least ``fewest`` tokens; none without KL."""
    listed = [
        (kl, bucket)
        for bucket, (kl, count) in enumerate(zip(profile.kl, profile.tokens, strict=True))
        if count >= fewest and math.isfinite(kl) and kl > 0
    ]
    return max(listed)[1] if listed else None


def places(profile: TokenProfile, bucket: int) -> str:
    """The positions of a bucket in words; the completion's first token is 0."""
    first, last = profile.edges[bucket], profile.edges[bucket + 1] - 1
    return f"token {first}" if first == last else f"tokens {first} to {last}"


def _around(steps: Sequence[int], step: int) -> list[int]:
    """At most WINDOW recorded steps around one, all on record."""
    centre = min(range(len(steps)), key=lambda i: abs(steps[i] - step))
    first = max(0, min(centre - WINDOW // 2, len(steps) - WINDOW))
    # The start is one step: there the policy still is the reference, and later steps would blur that.
    return [steps[0]] if centre == 0 else list(steps[first : first + WINDOW])


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> Points:
    found = ((int(row["step"]), row.get(name)) for row in rows)
    return tuple((step, float(value)) for step, value in found if isinstance(value, int | float))


def _loss_share(rows: Sequence[Mapping[str, Any]]) -> Points:
    found: list[tuple[int, float]] = []
    for row in rows:
        policy, kl = row.get("train/loss_policy"), row.get("train/loss_kl")
        if isinstance(policy, int | float) and isinstance(kl, int | float):
            total = abs(policy) + abs(kl)
            found += [(int(row["step"]), abs(kl) / total)] if total > 0 else []
    return tuple(found)
