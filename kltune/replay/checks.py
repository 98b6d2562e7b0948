"""A traced step and its logged metrics in, every sum done again by hand out, each beside what was logged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kltune.metrics.trace import StepTrace
from kltune.replay.advantage_by_hand import advantages, rewards, scores, weights
from kltune.replay.loss_by_hand import Numbers, column, k2, k3, log_ratio, token_parts

ABSOLUTE, RELATIVE = 2e-6, 2e-5
"""Float32 sums over a batch may be off by this much from the same in float64; a mistake is off by far more."""


@dataclass(frozen=True, slots=True)
class Check:
    """One number, twice."""

    name: str
    """The metric, or what is compared."""
    how: str
    """The sum in words."""
    by_hand: float
    logged: float
    tolerance: float
    """Largest difference that rounding explains."""

    @property
    def is_equal(self) -> bool:
        """Whether they agree within rounding; two NaN and two equal infinities do."""
        if not (np.isfinite(self.by_hand) and np.isfinite(self.logged)):
            return str(self.by_hand) == str(self.logged)
        return abs(self.by_hand - self.logged) <= self.tolerance


def check_trace(trace: StepTrace, metrics: Mapping[str, float]) -> list[Check]:
    """Sums over the trace against the step's metrics, and per-token numbers against their formulas."""
    with np.errstate(all="ignore"):  # a step that is not finite may be traced too
        return [
            *_kl_checks(trace, metrics),
            *_reward_checks(trace, metrics),
            *_advantage_checks(trace),
            *_loss_checks(trace, metrics),
        ]


def _kl_checks(trace: StepTrace, metrics: Mapping[str, float]) -> Iterator[Check]:
    monitor = "start_kl" if trace.rules["reference_moves"] else "exact_kl"
    exact = [column(c.columns, monitor) for c in trace.completions]
    drawn = [log_ratio(c) for c in trace.completions]
    sampler = [
        column(c.columns, "sampler") - column(c.columns, "policy") for c in trace.completions
    ]
    per_token = {
        "kl/exact_token": exact,
        "kl/k1_token": drawn,
        "kl/k2_token": [k2(one) for one in drawn],
        "kl/k3_token": [k3(one) for one in drawn],
        "kl/sampler_token": sampler,
        "train/entropy_token": [column(c.columns, "entropy") for c in trace.completions],
    }
    for name, values in per_token.items():
        pool = np.concatenate(values)
        how = f"sum over {len(pool)} valid tokens / their number"
        yield from _one(name, how, float(pool.sum() / max(1, len(pool))), metrics, pool)
    for name, values in {"kl/exact_seq": exact, "kl/k1_seq": drawn}.items():
        sums = np.array([one.sum() for one in values])
        how = f"mean over {len(sums)} completions of their sums"
        yield from _one(name, how, float(sums.mean()), metrics, sums)


def _reward_checks(trace: StepTrace, metrics: Mapping[str, float]) -> Iterator[Check]:
    known = np.array([c.proxy for c in trace.completions if c.proxy is not None], dtype=float)
    paid = rewards(trace)
    own = np.array([paid[c.row] for c in trace.completions if c.proxy is not None])
    if not len(known):
        return
    scored = f"mean over {len(known)} scored completions"
    yield from _one("train/proxy_mean", scored, float(known.mean()), metrics, known)
    how = f"{scored} of score - KL paid in the reward"
    yield from _one("train/reward_mean", how, float(own.mean()), metrics, own)
    how = "(proxy - score_shift) x score_factor, clipped"
    traced = [completion.score for completion in trace.completions]
    yield _largest("score of each completion", how, scores(trace), traced)


def _advantage_checks(trace: StepTrace) -> Iterator[Check]:
    by_hand = np.concatenate(advantages(trace))
    traced = np.concatenate([column(c.columns, "advantage") for c in trace.completions])
    how = f"{trace.rules['algorithm']}'s formula, from the scores and the KL paid in the reward"
    yield _largest("advantage of each token", how, by_hand, traced)


def _loss_checks(trace: StepTrace, metrics: Mapping[str, float]) -> Iterator[Check]:
    totals: list[tuple[float, float, float, float]] = []
    for number, update in enumerate(trace.updates, 1):
        parts = token_parts(trace, update)
        policy, kl, entropy, loss = (
            np.concatenate([getattr(one, name) for one in parts])
            for name in ("policy_loss", "kl_loss", "entropy_loss", "loss")
        )
        totals.append((loss.sum(), policy.sum(), kl.sum(), entropy.sum()))
        own = [row.weight for row in update.rows]
        how = f"by {trace.rules['aggregation']}, from the lengths of its completions"
        yield _largest(f"token weights of update {number}", how, weights(trace, update.rows), own)
        yield _sum(f"loss of update {number}", "sum over its tokens", loss, update.loss)
    names = ("train/loss", "train/loss_policy", "train/loss_kl", "train/loss_entropy")
    for place, name in enumerate(names):
        values = np.array([total[place] for total in totals])
        how = "sum over the update's tokens"
        if len(totals) > 1:
            how = f"mean over {len(totals)} updates of the sum over their tokens"
        yield from _one(name, how, float(values.mean()), metrics, values)


def _one(
    name: str, how: str, by_hand: float, metrics: Mapping[str, float], values: Numbers
) -> Iterator[Check]:
    """Nothing where the step logged no such metric."""
    if name in metrics:
        size = float(np.abs(values).mean()) if len(values) else 0.0
        yield Check(name, how, by_hand, float(metrics[name]), ABSOLUTE + RELATIVE * size)


def _sum(name: str, how: str, values: Numbers, logged: float) -> Check:
    size = float(np.abs(values).sum())
    return Check(name, how, float(values.sum()), logged, ABSOLUTE + RELATIVE * size)


def _largest(
    name: str, how: str, by_hand: Sequence[float] | Numbers, traced: Sequence[float] | Numbers
) -> Check:
    """The pair that differs most."""
    one, other = np.asarray(by_hand, dtype=float), np.asarray(traced, dtype=float)
    if not len(one):
        return Check(name, how, 0.0, 0.0, 0.0)
    place = int(np.abs(one - other).argmax())
    size = float(np.abs(other).max())
    tolerance = ABSOLUTE + 10 * RELATIVE * size  # a quotient of rounded numbers
    return Check(
        name, f"{how} (the largest difference)", float(one[place]), float(other[place]), tolerance
    )
