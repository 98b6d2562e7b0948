"""Two trials in, the difference of their values with an interval from paired prompts out.

Every trial is judged on the same prompts in the same order, so the difference is taken prompt
by prompt. Seeds are not repeated within a sweep: the interval holds the noise of prompts and
their samples only, never that of another training run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from kltune.report.rows import Checkpoint, TrialRow
from kltune.spec.study import ObjectiveSpec, StudySpec
from kltune.spec.trial import BetaUnit, KLUnit

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Difference:
    """Value of one trial minus value of another, in gold."""

    mean: float
    low: float
    high: float
    """95 % interval, Student t over prompts."""
    num_prompts: int

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def judged_checkpoints(row: TrialRow, objective: ObjectiveSpec) -> tuple[Checkpoint, ...]:
    """The evaluations that the trial's value is made of."""
    if objective.metric == "gold_final":
        return tuple(c for c in row.checkpoints if c.step > 0)[-2:]
    if objective.metric == "gold_mean":
        return row.checkpoints
    return () if row.peak is None else (row.peak,)


def prompt_scores(row: TrialRow, objective: ObjectiveSpec) -> np.ndarray | None:
    """Gold of each select prompt, averaged over the judged evaluations; none where it was not kept."""
    lists = [c.gold_by_prompt for c in judged_checkpoints(row, objective)]
    if not lists or not lists[0] or len({len(scores) for scores in lists}) != 1:
        return None
    scores = np.mean(np.asarray(lists, dtype=float), axis=0)
    return scores if bool(np.isfinite(scores).all()) else None


def value_difference(a: TrialRow, b: TrialRow, objective: ObjectiveSpec) -> Difference | None:
    """Compare the values of two trials; none where there is nothing to pair.

    The interval is centred on the difference of the told values (corrected for having picked a
    maximum) and as wide as the paired differences at the judged evaluations say.
    """
    scores_a, scores_b = prompt_scores(a, objective), prompt_scores(b, objective)
    if scores_a is None or scores_b is None or len(scores_a) != len(scores_b) or len(scores_a) < 2:
        return None
    paired = scores_a - scores_b
    num_prompts = len(paired)
    centre = float(paired.mean())
    if a.value is not None and b.value is not None:
        centre = a.value - b.value
    se = float(paired.std(ddof=1)) / math.sqrt(num_prompts)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, num_prompts - 1)) * se
    return Difference(centre, centre - half, centre + half, num_prompts)


@dataclass(frozen=True, slots=True)
class Plateau:
    """The evaluations around the peak that are as good as it within one standard error."""

    first_step: int
    last_step: int
    """The unbroken stretch around the peak: the window to stop in."""
    width: int
    """Evaluations anywhere in the trial within one standard error of the peak and within the limit."""
    total: int
    """Evaluations after step 0."""


def plateau(row: TrialRow, objective: ObjectiveSpec, unit: KLUnit) -> Plateau | None:
    """How long the trial holds its peak; none for a trial without one."""
    peak = row.peak
    if peak is None:
        return None
    limit = math.inf if objective.kl_limit is None else objective.kl_limit
    after = [c for c in row.checkpoints if c.step > 0]
    floor = peak.gold - (peak.gold_se if math.isfinite(peak.gold_se) else 0.0)
    is_good = [c.gold >= floor and c.kl(unit) <= limit for c in after]
    steps = [c.step for c in after]
    if peak.step not in steps:
        return Plateau(peak.step, peak.step, sum(is_good), len(after))
    first = last = steps.index(peak.step)
    while first > 0 and is_good[first - 1]:
        first -= 1
    while last + 1 < len(after) and is_good[last + 1]:
        last += 1
    return Plateau(steps[first], steps[last], sum(is_good), len(after))


def overoptimisation(row: TrialRow) -> float | None:
    """Fall of gold from its highest evaluation to the end while the proxy rose; none otherwise."""
    finite = [c for c in row.checkpoints if math.isfinite(c.gold) and math.isfinite(c.proxy)]
    if len(finite) < 2:
        return None
    top, end = max(finite, key=lambda c: c.gold), finite[-1]
    fall = top.gold - end.gold
    return fall if fall > 0 and end.proxy > top.proxy else None


def worst_overoptimised(rows: tuple[TrialRow, ...]) -> TrialRow | None:
    """The trial whose gold fell furthest from its peak while its proxy rose."""
    falls = [(fall, row) for row in rows if (fall := overoptimisation(row)) is not None]
    return max(falls, key=lambda pair: pair[0])[1] if falls else None


def is_beta_raw(spec: StudySpec) -> bool:
    """Whether a beta in the loss is raw reward per nat: by its unit, or beside undivided advantages."""
    is_undivided = spec.trainer.algorithm in ("dr-grpo", "rloo")
    return spec.beta_unit is BetaUnit.REWARD or is_undivided


def penalty_to_spread(row: TrialRow, is_beta_in_reward: bool) -> float | None:
    """Mean KL penalty over the spread that the advantage sees (field case E3).

    With beta in reward per nat of sequence KL: mean of beta x kl_seq over sigma_R, whatever the
    placement. With a native loss coefficient the advantages already have spread 1.
    """
    pairs = zip(row.curve.beta, row.curve.kl_seq, strict=True)
    paid = [beta * kl for beta, kl in pairs if math.isfinite(beta * kl)]
    in_reward = row.setting.penalty is not None and row.setting.penalty.in_reward
    spread = row.sigma_r if is_beta_in_reward or in_reward else 1.0
    if not paid or spread is None or spread <= 0:
        return None
    return sum(paid) / len(paid) / spread
