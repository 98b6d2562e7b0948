"""A recommendation in; whether training did better than none, against the same prompts before training, out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kltune.report.compare import ROUNDING, Difference, prompt_scores
from kltune.report.recommend import Recommendation
from kltune.report.rows import StudyRows, TrialRow
from kltune.statistics.contrast import half_width
from kltune.trial.words import score


@dataclass(frozen=True, slots=True)
class AgainstStart:
    """The trials against the untrained model, on the select prompts."""

    start: float
    """Gold before training."""
    best: float
    """Value of the recommended trial."""
    highest: float
    """The highest value of the trials that may be recommended."""
    difference: Difference | None
    """Value of the recommended trial minus gold before training; none where prompts can't be paired."""

    @property
    def beats(self) -> bool:
        """Whether any trial is worth more than no training, told from it or not."""
        return self.highest > self.start + ROUNDING

    @property
    def is_told(self) -> bool:
        """Whether the recommended trial can be told from no training."""
        return self.difference is not None and self.difference.is_told_apart

    @property
    def words(self) -> str:
        """One sentence for a reader; empty where the recommended trial is above, beyond noise."""
        golds = f"gold {score(self.start)} before training, {score(self.highest)} at best after"
        noise = "" if self.is_told else " (not told from the untrained model)"
        if not self.beats:
            return f"No trial beats the untrained model: {golds}{noise}."
        if self.difference is None or (self.is_told and self.difference.mean > 0):
            return ""
        golds = f"gold {score(self.start)} before training, {score(self.best)} after"
        if self.is_told:
            return f"The recommended trial is below the untrained model: {golds}."
        return (
            f"Not told from the untrained model: {golds} ({self.difference.interval} of the gain)."
        )


def against_start(study: StudyRows, found: Recommendation) -> AgainstStart | None:
    """Compare with the evaluation at step 0; none where that is not on record."""
    best, highest = found.best, found.highest
    start = best.start
    if start is None or best.value is None or highest.value is None:
        return None
    if not math.isfinite(start.gold):
        return None
    return AgainstStart(start.gold, best.value, highest.value, _difference(study, best))


def _difference(study: StudyRows, row: TrialRow) -> Difference | None:
    scores = prompt_scores(row, study.spec.objective, study.spec.kl_unit)
    if scores is None or row.start is None or row.value is None:
        return None
    before = np.array(row.start.gold_by_prompt, dtype=float)
    if len(before) != len(scores) or len(before) < 2 or not np.isfinite(before).all():
        return None
    paired = scores - before
    mean = row.value - row.start.gold
    half = half_width(float(paired.std(ddof=1)) / math.sqrt(len(paired)), len(paired))
    differing = int((np.abs(paired) > ROUNDING).sum())
    return Difference(mean, mean - half, mean + half, len(paired), differing)
