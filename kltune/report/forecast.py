"""A study and the preview in its folder in, how far each trial came along the forecast frontier out."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from kltune.preview.result import Curve, Forecast
from kltune.report.rows import Checkpoint, StudyRows, TrialRow

LEAST_KL = 0.05
"""Nearer to the reference than this many nats per sequence, a share is noise over nearly nothing."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What a trial's proxy gained at its KL, beside the most that the forecast says can be had there."""

    trial: int
    step: int
    kl_seq: float
    gain: float
    """Proxy above the trial's own start."""
    optimum: float
    """Proxy of the best policy at that KL, above the reference."""
    share_se: float
    """Standard error of the share, from the trial's proxy alone."""

    @property
    def share(self) -> float:
        """Gain over optimum: KL efficiency."""
        return self.gain / self.optimum


def efficiencies(study: StudyRows, forecast: Forecast) -> tuple[Efficiency, ...]:
    """One per trial that has a checkpoint within the KL that the sample supports: the peak, else the furthest there."""
    tilt = forecast.curve("tilt")
    found = [efficiency(row, tilt) for row in study.trials]
    return tuple(one for one in found if one is not None)


def efficiency(row: TrialRow, tilt: Curve) -> Efficiency | None:
    """Of one trial; none where no checkpoint lies within the supported KL."""
    start = row.start
    inside = [c for c in row.checkpoints if c.step > 0 and LEAST_KL <= c.kl_seq <= tilt.seen_kl_seq]
    if start is None or not inside:
        return None
    peak = row.peak
    at = peak if peak is not None and peak in inside else max(inside, key=_kl)
    optimum = optimum_gain(tilt, at.kl_seq)
    if not optimum > 0:
        return None
    gain = at.proxy - start.proxy
    return Efficiency(row.number, at.step, at.kl_seq, gain, optimum, at.proxy_se / optimum)


def optimum_gain(tilt: Curve, kl_seq: float) -> float:
    """Proxy of the best policy at a KL within the curve, above the reference."""
    kls = [point.kl_seq for point in tilt.points]
    proxies = [point.proxy.value for point in tilt.points]
    return float(np.interp(kl_seq, kls, proxies)) - proxies[0]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the trials' gold peaked, beside the forecast."""

    num_trials: int
    median_kl_seq: float
    median_gain: float
    """Gold at the peak above the trial's start."""
    num_near: int = 0
    """Trials left out: their gold is highest within `LEAST_KL` of the reference."""
    num_unjudged: int = 0
    """Trials left out: no start, or no checkpoint that they can be judged by."""


def outcome(study: StudyRows) -> Outcome | None:
    """The median over trials that went at least as far as `LEAST_KL`; none where there is none."""
    judged = [
        (row.peak, row.start)
        for row in study.trials
        if row.peak is not None and row.start is not None
    ]
    pairs = [(peak, start) for peak, start in judged if peak.kl_seq >= LEAST_KL]
    if not pairs:
        return None
    num_near, num_unjudged = len(judged) - len(pairs), len(study.trials) - len(judged)
    kl = median(peak.kl_seq for peak, _ in pairs)
    gain = median(peak.gold - start.gold for peak, start in pairs)
    return Outcome(len(pairs), kl, gain, num_near, num_unjudged)


def _kl(checkpoint: Checkpoint) -> float:
    return checkpoint.kl_seq
