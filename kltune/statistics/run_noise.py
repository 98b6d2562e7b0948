"""The trials of a study in; by how much a run usually departs from the law, beyond what prompts explain, out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import special

from kltune.statistics.law import (
    FEWEST_POINTS,
    FEWEST_PROMPTS,
    LawForm,
    LawPoints,
    RunNoise,
    scaled_design,
)
from kltune.statistics.law_errors import Floats, residuals_of

FEWEST_TRIALS: Final = 5
"""With fewer nothing usual can be told."""

_PER_BIN: Final = 10
"""Evaluations whose median departure is taken to be the law's fault."""


def usual_run_noise(trials: Sequence[LawPoints], form: LawForm) -> RunNoise | None:
    """The median over trials, so that a few runs off the law do not make it usual; None with fewer than 5 trials.

    Departures that all trials show at the same KL are the law's fault and no run's: they are
    taken off first. The median of so few squares lies below their mean: allowed for as for
    chi-square.
    """
    fitted = [
        points
        for points in trials
        if len(points.d_P) >= FEWEST_POINTS and points.gain_PN.shape[1] >= FEWEST_PROMPTS
    ]
    if len(fitted) < FEWEST_TRIALS:
        return None
    d_A = np.concatenate([points.d_P for points in fitted])
    middle = float(np.median(d_A))
    left = [residuals_of(*scaled_design(points, form, 2, middle)) for points in fitted]
    own_A = _without_common(d_A, np.concatenate([found.rest_P for found in left]))
    ends = np.cumsum([len(points.d_P) for points in fitted])
    variances = [
        found.run_variance(rest_P) * (df := len(rest_P) - 2) / float(special.chdtri(df, 0.5))
        for found, rest_P in zip(left, np.split(own_A, ends[:-1]), strict=True)
    ]
    return RunNoise(math.sqrt(float(np.median(variances))), middle)


def _without_common(d_A: Floats, rest_A: Floats) -> Floats:
    """Residuals less their median among those at about the same d, in bins of equal numbers."""
    bins = np.array_split(np.argsort(d_A, kind="stable"), max(1, len(d_A) // _PER_BIN))
    own_A = rest_A.copy()
    for members in bins:
        own_A[members] -= np.median(rest_A[members])
    return own_A
