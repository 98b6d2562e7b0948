"""Estimates on models of several sizes in, the factor between them and its interval out.

Three sources of an estimate: the top of a parabola through noisy values (the best beta), an
estimate that brings its own interval (KL*), and the same settings measured on every size. All
work on natural logs, so a difference is a factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

CONFIDENCE: Final = 0.95
FEWEST_POINTS: Final = 5
"""Values below which no parabola is laid through them: three are spent on it."""
FEWEST_SETTINGS: Final = 4
"""Settings below which their scatter says little of the noise."""
_ROOM: Final = 2.0
"""Factor on a parabola's limit, for curves that are none: without it one in eight best betas that move by
2 along a bell curve was said to stay within 2 (generated data); with it, one in fifty."""
_REACH: Final = math.log(100)
"""How far beyond the values tried a best point is looked for: beyond it the parabola is a line."""
_WIDEST: Final = math.log(1000)
"""Largest factor that is looked at; an interval that reaches it has no end on that side."""
_TINY: Final = 1e-12

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its interval of at least 95 %; None: not known, or without an end on that side."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def exp(self) -> Interval:
        """From logs to what they are logs of."""
        return Interval(*(None if x is None else math.exp(x) for x in self.parts))

    @property
    def parts(self) -> tuple[float | None, float | None, float | None]:
        """Value, low, high."""
        return self.value, self.low, self.high


@dataclass(frozen=True, slots=True)
class Profile:
    """How well each place fits one study: log likelihood ratio to the best place, at most 0."""

    place: Array
    """Logs, evenly spaced; beyond both ends the fit stays what it is there."""
    fit: Array
    freedom: float
    """Degrees of freedom of the noise behind it; infinite where the noise is known."""

    def interval(self) -> Interval:
        """The places that fit."""
        return _where(self.place, self.fit, _limit((self,)))


@dataclass(frozen=True, slots=True)
class Drift:
    """How a quantity moves from the smallest model to the largest."""

    factor: Interval
    """Largest over smallest, along a straight line of logs through all sizes."""
    pairs: tuple[Interval, ...]
    """The same between every two sizes, larger over smaller, without that line."""
    exponent: Interval
    """Slope of the line: the factor is (parameters of the one / the other) to this power."""


def parabola_profile(log_x: Array, value: Array) -> Profile | None:
    """Where the top of a parabola through ``value`` over ``log_x`` may lie.

    Every place is tried as the top: least squares of a + c (x - place)^2 with c <= 0. The ratio
    of the residuals to those of the best place is an F with 1 and n - 3 degrees of freedom
    (Fieller 1954 for a ratio, Hirschberg & Lye 2005 for the extremum), so values without a hump
    give an interval without an end. `_ROOM` widens it. The noise is that around the parabola: of runs, prompts, and
    of whatever else differs between settings. None below `FEWEST_POINTS` values or with fewer
    than 4 different x.
    """
    is_there = np.isfinite(log_x) & np.isfinite(value)
    x, y = log_x[is_there], value[is_there]
    if len(x) < FEWEST_POINTS or len(np.unique(x)) <= 3:
        return None
    place = np.linspace(x.min() - _REACH, x.max() + _REACH, 401)
    square = (x[None, :] - place[:, None]) ** 2
    square -= square.mean(axis=1, keepdims=True)
    centred = y - y.mean()
    curvature = np.minimum((square @ centred) / np.maximum((square**2).sum(axis=1), _TINY), 0.0)
    residual = ((centred[None, :] - curvature[:, None] * square) ** 2).sum(axis=1)
    floor = _TINY * max(1.0, float((centred**2).sum()))
    freedom = len(x) - 3.0
    ratio = np.maximum(residual, floor) / max(float(residual.min()), floor)
    return Profile(place, -(freedom + 1) / 2 * np.log(ratio), freedom)


def known_profile(log_estimate: Interval) -> Profile | None:
    """Where a quantity may lie whose 95 % interval came with it; None without an estimate.

    Each side is half a normal distribution, since intervals of logs may be lopsided. A missing
    end says that anything on that side fits.
    """
    value = log_estimate.value
    if value is None or not math.isfinite(value):
        return None
    place = np.linspace(value - 2 * _WIDEST, value + 2 * _WIDEST, 2001)
    wide = stats.norm.ppf(0.5 + CONFIDENCE / 2)
    below = _deviation(value, log_estimate.low) / wide
    above = _deviation(value, log_estimate.high) / wide
    spread = np.where(place < value, below, above)
    return Profile(place, -0.5 * ((place - value) / spread) ** 2, math.inf)


def _deviation(value: float, end: float | None) -> float:
    return 1e9 if end is None or not math.isfinite(end) else max(abs(value - end), 1e-6)


def profile_drift(profiles: Sequence[Profile], log_sizes: Sequence[float]) -> Drift:
    """How the place moves with size, from how well each place fits each study.

    Studies are taken as independent of each other. The limit on the likelihood ratio is that of
    an F with the fewest degrees of freedom among the studies, which is wider than their sum's.
    """
    sizes = np.asarray(log_sizes, dtype=float)
    span = float(np.ptp(sizes))
    line = _factor(profiles, (sizes - sizes.mean()) / span)
    pairs = tuple(
        _factor((profiles[i], profiles[j]), np.array([-0.5, 0.5])) for i, j in _pairs(sizes)
    )
    return _drift(line, pairs, span)


def paired_drift(log_values: Array, log_sizes: Sequence[float]) -> Drift | None:
    """How the same settings move with size: ``log_values`` is [sizes, settings], nothing missing.

    Each setting has its own slope; the factor is their mean with a Student t interval over the
    settings. None below `FEWEST_SETTINGS`.
    """
    num_settings = log_values.shape[1]
    if num_settings < FEWEST_SETTINGS:
        return None
    sizes = np.asarray(log_sizes, dtype=float)
    span = float(np.ptp(sizes))
    weights = (sizes - sizes.mean()) / ((sizes - sizes.mean()) ** 2).sum()
    line = _t_interval(span * (weights @ log_values))
    pairs = tuple(_t_interval(log_values[j] - log_values[i]) for i, j in _pairs(sizes))
    return _drift(line, pairs, span)


def _t_interval(differences: Array) -> Interval:
    count = len(differences)
    mean = float(differences.mean())
    half = float(
        stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1) * differences.std(ddof=1) / math.sqrt(count)
    )
    return Interval(mean, mean - half, mean + half)


def _drift(line: Interval, pairs: tuple[Interval, ...], span: float) -> Drift:
    exponent = Interval(*(None if x is None else x / span for x in line.parts))
    return Drift(line.exp(), tuple(pair.exp() for pair in pairs), exponent)


def _pairs(sizes: Array) -> list[tuple[int, int]]:
    """Every two studies, the smaller one first."""
    order = np.argsort(sizes, kind="stable").tolist()
    return [(i, j) for at, i in enumerate(order) for j in order[at + 1 :]]


def _factor(profiles: Sequence[Profile], shares: Array) -> Interval:
    """Log factor over the whole span; a study lies ``share`` of it away from the middle."""
    factors = np.linspace(-_WIDEST, _WIDEST, 461)
    low = min(float(p.place[0]) for p in profiles) - _WIDEST / 2
    high = max(float(p.place[-1]) for p in profiles) + _WIDEST / 2
    # Estimates that bring their interval may be sharp; the top of a parabola never is.
    middles = np.arange(low, high, 0.05 if any(math.isinf(p.freedom) for p in profiles) else 0.1)
    fits = [
        np.interp(middles[None, :] + share * factors[:, None], p.place, p.fit)
        for p, share in zip(profiles, shares, strict=True)
    ]
    return _where(factors, np.sum(fits, axis=0).max(axis=1), _limit(profiles))


def _limit(profiles: Sequence[Profile]) -> float:
    """Fall of the log likelihood at the ends of the interval."""
    freedom = min(p.freedom for p in profiles)
    if math.isinf(freedom):
        return float(stats.chi2.ppf(CONFIDENCE, 1)) / 2
    ratio = math.log1p(float(stats.f.ppf(CONFIDENCE, 1, freedom)) / freedom)
    return _ROOM * (freedom + 1) / 2 * ratio


def _where(place: Array, fit: Array, limit: float) -> Interval:
    """The places whose fit is within ``limit`` of the best; no end where that reaches the edge."""
    best = float(fit.max())
    is_in = np.flatnonzero(fit >= best - limit)
    first, last = int(is_in[0]), int(is_in[-1])
    low = None if first == 0 else float(place[first - 1])
    high = None if last == len(place) - 1 else float(place[last + 1])
    # A best point on the edge, on a level stretch, or where everything fits is no estimate.
    top = np.flatnonzero(fit >= best - 1e-9)
    is_point = top[0] > 0 and top[-1] < len(place) - 1 and len(is_in) < len(place)
    return Interval(float(place[top].mean()) if is_point else None, low, high)
