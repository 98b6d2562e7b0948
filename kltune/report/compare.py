"""Two trials in, the difference of their values with an interval from paired prompts out.

Every trial is judged on the same prompts in the same order, so the difference is taken prompt
by prompt. The interval here is that of one pair looked at alone, with the noise of prompts and
their samples only; kltune.report.ranking has those of all pairs together, with that of seeds where
it was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from kltune.report.rows import Checkpoint, StudyRows, TrialRow
from kltune.spec.study import ObjectiveSpec, StudySpec
from kltune.spec.trial import BetaUnit, KLUnit
from kltune.statistics.contrast import FEWEST_PROMPTS, half_width, no_interval
from kltune.trial.limits import are_respected
from kltune.trial.words import score
from kltune.units import advantage_scale

CONFIDENCE = 0.95

FEWEST_DIFFERING = 3
"""Prompts whose gold differs, below which nothing is told of its noise."""

ROUNDING = 1e-9
"""Gold below this is rounding."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Value of one trial minus value of another, in gold."""

    mean: float
    low: float
    high: float
    """95 % interval, Student t over prompts."""
    num_prompts: int
    num_differing: int
    """Prompts of them on which the two are not equal."""

    @property
    def no_interval(self) -> str:
        """Why no interval is to be shown; empty where there is one."""
        return no_interval(self.num_prompts, is_spread=self.high - self.low > ROUNDING)

    @property
    def interval(self) -> str:
        """The interval as every place of the report writes it, or why there is none."""
        return self.no_interval or f"95 % interval {self.low:+.3f} to {self.high:+.3f}"

    @property
    def doubt(self) -> str:
        """Why the prompts can't tell, whatever the interval says; "on these prompts" where they can."""
        if self.num_prompts < FEWEST_PROMPTS:
            return f": {self.no_interval}"
        if self.num_differing < FEWEST_DIFFERING:
            return f": only {self.num_differing} of {self.num_prompts} prompts differ, so the prompts can't tell"
        if self.high - self.low <= ROUNDING:
            return ": all prompts differ by the same, which says nothing of their noise"
        return " on these prompts"

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval leaves out 0, and has a width that the prompts can tell."""
        is_sound = self.num_differing >= FEWEST_DIFFERING and not self.no_interval
        return is_sound and (self.low > 0 or self.high < 0)


def is_within(
    row: TrialRow, checkpoint: Checkpoint, objective: ObjectiveSpec, unit: KLUnit
) -> bool:
    """Whether a checkpoint of ``row`` respects the limits of the objective, on KL and on other golds."""
    limit = math.inf if objective.kl_limit is None else objective.kl_limit
    start = {} if row.start is None else row.start.others
    return checkpoint.kl(unit) <= limit and are_respected(
        objective.gold_limits,
        {name: other.by_prompt for name, other in checkpoint.others.items()},
        {name: other.by_prompt for name, other in start.items()},
    )


def prompt_scores(row: TrialRow, objective: ObjectiveSpec, unit: KLUnit) -> np.ndarray | None:
    """What each select prompt adds to the trial's value, so that their mean is that value.

    gold_peak: gold at the step that the other half of the prompts chose (`cross_valued`);
    gold_final: the mean of the last two evaluations; gold_mean: the area over the steps. With
    an odd number of prompts the two halves weigh the same and their prompts nearly so. None
    where the scores were not kept.
    """
    points = [c for c in row.checkpoints if math.isfinite(c.gold + c.kl_token + c.kl_seq)]
    after = [c for c in points if c.step > 0]
    if row.peak is None or not after:
        return None
    lists = [c.gold_by_prompt for c in (row.peak, *points)]
    if not lists[0] or len({len(scores) for scores in lists}) != 1:
        return None
    if objective.metric == "gold_final":
        scores = np.mean([c.gold_by_prompt for c in after[-2:]], axis=0)
    elif objective.metric == "gold_mean":
        scores = _area(points)
    else:
        scores = _cross_valued([c for c in after if is_within(row, c, objective, unit)] or after)
    return scores if bool(np.isfinite(scores).all()) else None


def _cross_valued(points: list[Checkpoint]) -> np.ndarray:
    gold_SN = np.array([c.gold_by_prompt for c in points], dtype=float)
    scores = np.empty(gold_SN.shape[1])
    for parity in (0, 1):
        chosen = int(gold_SN[:, parity::2].mean(axis=1).argmax())  # the earliest of equals
        scores[1 - parity :: 2] = gold_SN[chosen, 1 - parity :: 2]
    return scores


def _area(points: list[Checkpoint]) -> np.ndarray:
    gold_SN = np.array([c.gold_by_prompt for c in points], dtype=float)
    steps = np.array([c.step for c in points], dtype=float)
    if steps[-1] == steps[0]:
        return gold_SN[-1]
    pairs = (gold_SN[1:] + gold_SN[:-1]) / 2
    return (np.diff(steps)[:, None] * pairs).sum(axis=0) / (steps[-1] - steps[0])


def value_difference(
    a: TrialRow, b: TrialRow, objective: ObjectiveSpec, unit: KLUnit
) -> Difference | None:
    """Compare the values of two trials; none where there is nothing to pair.

    The values are means over prompts (a peak's, corrected for having picked a maximum, too), so
    centre and width are those of one statistic: the paired differences of `prompt_scores`.
    """
    scores_a, scores_b = prompt_scores(a, objective, unit), prompt_scores(b, objective, unit)
    if scores_a is None or scores_b is None or len(scores_a) != len(scores_b) or len(scores_a) < 2:
        return None
    paired = scores_a - scores_b
    num_prompts = len(paired)
    centre = float(paired.mean())
    if a.value is not None and b.value is not None:
        centre = a.value - b.value
    se = float(paired.std(ddof=1)) / math.sqrt(num_prompts)
    half = half_width(se, num_prompts)
    num_differing = int((np.abs(paired) > ROUNDING).sum())
    return Difference(centre, centre - half, centre + half, num_prompts, num_differing)


def value_interval(
    row: TrialRow, objective: ObjectiveSpec, unit: KLUnit
) -> tuple[float, float] | None:
    """95 % interval of a trial's value over prompts, by Student's t on `prompt_scores`.

    The one interval of a value: the same scores and the same t as in every comparison. None
    where the scores were not kept, are too few, or all equal (`value_words` says which).
    """
    scores = prompt_scores(row, objective, unit)
    if scores is None or row.value is None or _no_interval(scores):
        return None
    half = half_width(float(scores.std(ddof=1)) / math.sqrt(len(scores)), len(scores))
    return row.value - half, row.value + half


def value_words(row: TrialRow, objective: ObjectiveSpec, unit: KLUnit) -> str:
    """The interval of a value in words, or why there is none; empty where the scores were not kept."""
    found = value_interval(row, objective, unit)
    if found is not None:
        return interval_words(*found)
    scores = prompt_scores(row, objective, unit)
    return "" if scores is None else _no_interval(scores)


def start_words(start: Checkpoint) -> str:
    """The same of the evaluation before training; empty where it can't be told."""
    num_prompts = len(start.gold_by_prompt)
    if num_prompts == 0 or not math.isfinite(start.gold_se):
        return no_interval(num_prompts) if num_prompts else ""
    why = no_interval(num_prompts, is_spread=start.gold_se > ROUNDING)
    half = half_width(start.gold_se, num_prompts)
    return why or interval_words(start.gold - half, start.gold + half)


def _no_interval(scores: np.ndarray) -> str:
    return no_interval(len(scores), is_spread=float(np.ptp(scores)) > ROUNDING)


def interval_words(low: float, high: float) -> str:
    """An interval of gold as every place of the report writes it."""
    return f"95 % interval {score(low)} to {score(high)}"


@dataclass(frozen=True, slots=True)
class Plateau:
    """The evaluations around the peak that are as good as it within one standard error."""

    first_step: int
    last_step: int
    """The unbroken stretch around the peak: the window to stop in."""
    width: int
    """Evaluations in that stretch: one after the other, within one standard error and the limits."""
    total: int
    """Evaluations after step 0."""


def plateau(row: TrialRow, objective: ObjectiveSpec, unit: KLUnit) -> Plateau | None:
    """How long the trial holds its peak; none for a trial without one."""
    peak = row.peak
    if peak is None:
        return None
    after = [c for c in row.checkpoints if c.step > 0]
    floor = peak.gold - (peak.gold_se if math.isfinite(peak.gold_se) else 0.0)
    is_good = [c.gold >= floor and is_within(row, c, objective, unit) for c in after]
    steps = [c.step for c in after]
    if peak.step not in steps:
        return Plateau(peak.step, peak.step, 1, len(after))
    first = last = steps.index(peak.step)
    while first > 0 and is_good[first - 1]:
        first -= 1
    while last + 1 < len(after) and is_good[last + 1]:
        last += 1
    return Plateau(steps[first], steps[last], last - first + 1, len(after))


def overoptimisation(row: TrialRow) -> float | None:
    """Fall of gold from its highest evaluation to the end while the proxy rose; none otherwise."""
    finite = [c for c in row.checkpoints if math.isfinite(c.gold) and math.isfinite(c.proxy)]
    if len(finite) < 2:
        return None
    top, end = max(finite, key=lambda c: c.gold), finite[-1]
    fall = top.gold - end.gold
    return fall if fall > 0 and end.proxy > top.proxy else None


def is_beyond_noise(row: TrialRow) -> bool:
    """Whether the fall of gold from its highest evaluation to the end is more than the prompts' noise.

    One-sided t-test over paired prompts at 5 %, times the evaluations that the highest was chosen from
    (Bonferroni), as the guard gold_drop has it.
    """
    finite = [c for c in row.checkpoints if math.isfinite(c.gold) and math.isfinite(c.proxy)]
    top, end = max(finite, key=lambda c: c.gold), finite[-1]
    if len(top.gold_by_prompt) != len(end.gold_by_prompt):
        return False
    falls = np.array(top.gold_by_prompt, dtype=float) - np.array(end.gold_by_prompt, dtype=float)
    if not np.isfinite(falls).all() or _no_interval(falls):
        return False
    se = float(falls.std(ddof=1)) / math.sqrt(len(falls))
    chance = float(stats.t.sf(float(falls.mean()) / se, len(falls) - 1)) * (len(finite) - 1)
    return chance <= 1 - CONFIDENCE


def worst_overoptimised(rows: tuple[TrialRow, ...]) -> TrialRow | None:
    """The trial whose gold fell furthest from its peak, beyond noise, while its proxy rose."""
    falls = [(fall, row) for row in rows if (fall := overoptimisation(row)) is not None]
    told = [(fall, row) for fall, row in falls if is_beyond_noise(row)]
    return max(told, key=lambda pair: pair[0])[1] if told else None


def is_beta_raw(spec: StudySpec) -> bool:
    """Whether a beta in the loss is raw reward per nat: by its unit, or beside undivided advantages."""
    critic = spec.trainer.value_function
    is_whitened = critic is None or critic.whiten
    scale = advantage_scale(spec.trainer.algorithm, 1.0, 1.0, is_whitened=is_whitened)
    return spec.beta_unit is BetaUnit.REWARD or scale is None


def spread_ratio(study: StudyRows, row: TrialRow) -> float | None:
    """`penalty_to_spread` of a trial, in the unit that its study's beta has."""
    is_of_mean = study.spec.trainer.credit == "length-mean"
    return penalty_to_spread(row, is_beta_raw(study.spec), is_of_mean=is_of_mean)


def penalty_to_spread(
    row: TrialRow, is_beta_in_reward: bool, *, is_of_mean: bool = False
) -> float | None:
    """Mean KL penalty over the spread that the advantage sees (field case E3).

    With beta in reward per nat of sequence KL: mean of beta x kl_seq over sigma_R, whatever the
    placement; of kl_token where the reward pays a completion's mean (``is_of_mean``). With a
    native loss coefficient the advantages already have spread 1. KL is that to the reference
    in force.
    """
    in_reward = row.setting.penalty is not None and row.setting.penalty.in_reward
    unit = KLUnit.TOKEN if is_of_mean and in_reward else KLUnit.SEQUENCE
    pairs = zip(row.curve.beta, row.curve.held(unit), strict=True)
    paid = [beta * kl for beta, kl in pairs if math.isfinite(beta * kl)]
    spread = row.sigma_r if is_beta_in_reward or in_reward else 1.0
    if not paid or spread is None or spread <= 0:
        return None
    return sum(paid) / len(paid) / spread
