"""KL, beta and target of a trial's steps in; what its controller did to them out, in numbers and a verdict.

Element i of every array is step i: the beta that its update used, the KL that was measured
before that update, the target that this KL was judged by. So beta answers KL one step later,
and KL answers beta one step later at the earliest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

INERT_BELOW: Final = 1.1
"""A controller that moved beta by less than this factor did nothing."""

_NEAR: Final = math.log(1.2)
"""KL within this of its target, in logs, is there: the proportional controller's own clip."""

_HELD: Final = 1.25
"""A trial whose KL ends within this factor of its target holds it."""

_CROSSINGS: Final = 3
"""Crossings that make a swing: one overshoot and its return are none."""

_WINDOW: Final = 5
"""Steps whose mean is looked at for crossings: a swing is slower than the noise of a step."""

_NOISES: Final = 3.0
"""A crossing goes this many standard deviations of that mean's noise beyond the target, both ways."""

_FEWEST_STEPS: Final = 10
"""Fewer say nothing."""

_LONGEST_LAG: Final = 30
"""Steps."""


class Conduct(StrEnum):
    """What a controller did, in one word or two."""

    TOO_SHORT = "can't be told"
    WRONG_SIGN = "wrong sign"
    INERT = "inert"
    NEVER_ARRIVES = "never arrives"
    OSCILLATES = "oscillates"
    DOES_NOT_HOLD = "does not hold the target"
    HOLDS = "holds the target"


@dataclass(frozen=True, slots=True)
class Lag:
    """How late KL answers beta."""

    steps: int
    correlation: float
    """Most negative correlation of a change of log beta with a later change of log KL."""
    at_once: float
    """The same at lag 0, where beta can't be the cause."""
    noise: float
    """What the most negative of so many correlations of unrelated series exceeds in 1 case of 40."""
    is_longest: bool
    """Whether it is the longest lag looked at: then the true one may be longer."""

    @property
    def is_told(self) -> bool:
        """Whether the answer stands out of the noise, and from what was there at once."""
        stands_out = max(self.correlation, self.correlation - self.at_once) < -self.noise
        return stands_out and not self.is_longest


@dataclass(frozen=True, slots=True)
class Swings:
    """How KL went about its target after it had first come there."""

    crossings: int
    period: float | None
    """Steps of the swing with the most power; none below 3 crossings."""
    amplitude: float
    """Factor by which KL swings up and down from its middle, as a sine of its variance would; 1: not at all."""


_STILL: Final = Swings(0, None, 1.0)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a controller did in a trial; steps count from the first with a target."""

    conduct: Conduct
    num_steps: int
    num_moves: int
    """Moves of beta."""
    right_share: float | None
    """Share of them whose sign is that of KL - target; none without a move."""
    beta_factor: float
    """Highest / lowest beta."""
    arrival: int | None
    """Step at which KL first was within 20 % of its target or beyond it."""
    lag: Lag | None
    """None where there are too few moves after the arrival to look for one."""
    swings: Swings
    end_ratio: float | None
    """Median KL / target over the last ``end_steps``: not the KL of the last step, nor that at the stop."""
    end_steps: int
    """A tenth of the steps, 5 or more; all where there are fewer."""


def behaviour(
    kl: Sequence[float],
    beta: Sequence[float],
    target: Sequence[float],
    band: tuple[float, float] = (1.0, 1.0),
) -> Behaviour:
    """Judge a controller by its trial; steps without a finite KL, beta and target are left out.

    ``band``: where the controller itself is content, as multiples of the target.
    """
    rows = np.array([kl, beta, target], dtype=np.float64)
    seen = np.isfinite(rows).all(axis=0) & (rows[1] > 0) & (rows[2] > 0)
    kls, betas, targets = rows[:, seen]
    moves = np.diff(np.log(betas))
    is_move = np.abs(moves) > 1e-12
    right = np.sign(moves)[is_move] == np.sign(kls - targets)[:-1][is_move]
    # A KL of 0 (the first step's) or below (noise) has no logarithm; a thousandth of the target has.
    relative = np.log(np.maximum(kls / targets, 1e-3))
    off = _beyond(relative, band)
    arrival = _arrival(off)
    found = Behaviour(
        conduct=Conduct.TOO_SHORT,
        num_steps=int(betas.size),
        num_moves=int(is_move.sum()),
        right_share=float(right.mean()) if right.size else None,
        beta_factor=float(betas.max() / betas.min()) if betas.size else 1.0,
        arrival=arrival,
        lag=None if arrival is None else find_lag(kls[arrival:], betas[arrival:]),
        swings=_STILL if arrival is None else _swings(relative[arrival:], band),
        end_ratio=_end_ratio(kls / targets),
        end_steps=_end_steps(int(betas.size)),
    )
    return replace(found, conduct=_conduct(found, band))


def find_lag(kl: Array, beta: Array) -> Lag | None:
    """The lag at which a change of beta is followed most clearly by the opposite change of KL.

    None where there are too few changes, or where either never changes. The noise level allows
    for having looked at several lags; for one alone it is 2 / sqrt(pairs).
    """
    is_positive = kl > 0
    pushed, answered = np.diff(np.log(beta[is_positive])), np.diff(np.log(kl[is_positive]))
    longest = min(_LONGEST_LAG, len(pushed) // 3)
    if len(pushed) - longest < _FEWEST_STEPS:
        return None
    values = [_correlation(pushed[: len(pushed) - k], answered[k:]) for k in range(longest + 1)]
    if not np.isfinite(values).all():
        return None
    best = 1 + int(np.argmin(values[1:]))
    width = NormalDist().inv_cdf(1 - 0.025 / longest)
    return Lag(
        steps=best,
        correlation=values[best],
        at_once=values[0],
        noise=width / math.sqrt(len(pushed) - best),
        is_longest=best == longest,
    )


def _correlation(first: Array, second: Array) -> float:
    first, second = first - first.mean(), second - second.mean()
    scale = math.sqrt(float((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / scale if scale > 1e-24 else math.nan


def _beyond(relative: Array, band: tuple[float, float]) -> Array:
    """How far log(KL / target) is outside the band, with its sign; 0 inside."""
    low, high = math.log(band[0]), math.log(band[1])
    return np.maximum(relative - high, 0.0) + np.minimum(relative - low, 0.0)


def _arrival(off: Array) -> int | None:
    """The first step near the band, or on the other side of it than the first."""
    if not off.size:
        return None
    there = (np.abs(off) <= _NEAR) | (np.sign(off) != np.sign(off[0]))
    return int(there.argmax()) if there.any() else None


def _swings(relative: Array, band: tuple[float, float]) -> Swings:
    """Crossings from clearly below the band to clearly above it and back."""
    if relative.size < _WINDOW:
        return _STILL
    noise = _noise(relative)
    smooth = np.convolve(relative, np.full(_WINDOW, 1 / _WINDOW), mode="valid")
    off = _beyond(smooth, band)
    clear = np.flatnonzero(np.abs(off) > max(_NEAR, _NOISES * noise / math.sqrt(_WINDOW)))
    sides = np.sign(off[clear])
    turns = clear[1:][sides[1:] != sides[:-1]]
    if turns.size < _CROSSINGS:
        return Swings(int(turns.size), None, 1.0)
    swinging = relative[turns[0] :]
    variance = float(np.var(swinging)) - noise**2
    amplitude = math.exp(math.sqrt(2 * max(0.0, variance)))
    return Swings(int(turns.size), _period(swinging), amplitude)


def _period(values: Array) -> float:
    """The period with the most power, of those that fit twice: crossings may be missed, power may not."""
    num = 8 * values.size  # padded: between whole numbers of periods as well
    power = np.abs(np.fft.rfft(values - values.mean(), num))
    power[:17] = 0  # fewer than 2 periods
    return num / int(power.argmax())


def _noise(relative: Array) -> float:
    """Standard deviation of what changes from step to step, by second differences: a swing has few."""
    return float(1.4826 * np.median(np.abs(np.diff(relative, 2)))) / math.sqrt(6)


def _end_ratio(ratio: Array) -> float | None:
    return float(np.median(ratio[-_end_steps(ratio.size) :])) if ratio.size else None


def _end_steps(size: int) -> int:
    return min(size, max(_WINDOW, size // 10))


def _conduct(found: Behaviour, band: tuple[float, float]) -> Conduct:
    if found.num_steps < _FEWEST_STEPS:
        return Conduct.TOO_SHORT
    if found.right_share is not None and found.right_share + 1 / math.sqrt(found.num_moves) < 0.5:
        return Conduct.WRONG_SIGN  # by more than two standard errors of a coin
    if found.beta_factor < INERT_BELOW:
        return Conduct.INERT
    if found.arrival is None:
        return Conduct.NEVER_ARRIVES
    if found.swings.crossings >= _CROSSINGS:
        return Conduct.OSCILLATES
    end = found.end_ratio
    is_held = end is not None and band[0] / _HELD <= end <= band[1] * _HELD
    return Conduct.HOLDS if is_held else Conduct.DOES_NOT_HOLD
