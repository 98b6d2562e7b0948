"""A study's trials in, where gold peaked in each and which steps can't be told from that out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kltune.report.compare import is_within
from kltune.report.rows import Checkpoint, StudyRows, TrialRow
from kltune.statistics.peak import Peak, find_peak


@dataclass(frozen=True, slots=True)
class TrialPeak:
    """A trial's peak and the evaluations it was found among."""

    row: TrialRow
    peak: Peak
    checkpoint: Checkpoint
    """At the peak."""
    is_feasible: bool
    """Whether some checkpoint respects the limits; else the peak is that of all."""


def find_peaks(study: StudyRows) -> dict[int, TrialPeak]:
    """The peak of every trial with an evaluation after step 0 and its scores by prompt, by number."""
    found = {row.number: trial_peak(study, row) for row in study.trials}
    return {number: peak for number, peak in found.items() if peak is not None}


def trial_peak(study: StudyRows, row: TrialRow) -> TrialPeak | None:
    """Look for the peak where the study may choose: after step 0, finite, within all limits."""
    unit = study.spec.kl_unit
    after = [c for c in row.checkpoints if c.step > 0 and _is_whole(c)]
    if not after or len({len(c.gold_by_prompt) for c in after}) != 1:
        return None
    kl_S = np.array([c.kl(unit) for c in after])
    allowed_S = np.array([is_within(row, c, study.spec.objective, unit) for c in after])
    is_feasible = bool(allowed_S.any())
    peak = find_peak(
        np.array([c.gold_by_prompt for c in after]),
        np.array([c.step for c in after]),
        kl_S,
        allowed_S if is_feasible else np.ones_like(allowed_S),
    )
    if peak is None:
        return None
    return TrialPeak(row, peak, next(c for c in after if c.step == peak.step), is_feasible)


def _is_whole(checkpoint: Checkpoint) -> bool:
    numbers = (*checkpoint.gold_by_prompt, checkpoint.kl_token, checkpoint.kl_seq)
    return bool(checkpoint.gold_by_prompt) and math.isfinite(sum(numbers))
