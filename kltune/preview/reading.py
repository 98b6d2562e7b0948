"""A curve in, what gold does along it out: rises, turns, falls, or can't be told, with intervals.

Gold at two points of a curve is compared prompt by prompt, so what prompts differ by drops out.
All pairs of points are looked at together: the largest difference over its own standard error
is held against the same of the bootstrap (max-t, Westfall & Young 1993), so that a fall is
claimed wrongly in at most `ERROR` of the previews. Shapes: G points, P prompts, B draws.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kltune.preview.curves import Scored, Traced, centred
from kltune.preview.result import Interval, Reading, Verdict, interval

Floats = NDArray[np.float64]

ERROR = 0.025
"""Chance of a wrong claim per curve; there are two, so 5 % in all."""

MIN_PROMPTS = 8
"""With fewer prompts a bootstrap over them claims too much: nothing is claimed."""

_OPEN = 0.025
"""An end of an interval is open where more than this share of the draws peak at the curve's own end."""


def read_curve(traced: Traced, shares_BP: Floats) -> Reading:
    """What gold does from the reference on."""
    gold_BG, gold_G = shares_BP @ traced.gold_GP.T, traced.gold_GP.mean(axis=1)
    kl_BG, kl_G = shares_BP @ traced.kl_GP.T, traced.kl_GP.mean(axis=1)
    peak = int(gold_G.argmax())
    peak_B = gold_BG.argmax(axis=1)
    peak_kl_B = kl_BG[np.arange(len(peak_B)), peak_B]
    peak_kl = _peak_interval(float(kl_G[peak]), peak_kl_B, peak_B == len(gold_G) - 1)
    steps = _clear_steps(gold_G, gold_BG, traced.gold_GP.shape[1])
    risen, parted = (_first(steps_GG) for steps_GG in steps)
    verdict = _verdict(steps, may_peak_at_start=peak_kl.low == 0)
    gain_B = gold_BG[:, peak] - gold_BG[:, 0]
    knob = traced.knob_G[peak]
    return Reading(
        kind=traced.kind,
        verdict=verdict,
        peak_kl_seq=peak_kl,
        peak_kl_token=float(kl_G[peak] / traced.tokens_GP[peak].mean()),
        peak_knob=knob if math.isfinite(knob) else None,
        peak_gold=interval(float(gold_G[peak]), gold_BG[:, peak]),
        gain=interval(float(gold_G[peak] - gold_G[0]), gain_B),
        risen_kl_seq=None if risen is None else float(kl_G[risen]),
        parted_kl_seq=None if parted is None else float(kl_G[parted]),
        seen_kl_seq=float(kl_G[-1]),
    )


def order(readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
    """The reading to go by first: one that saw gold turn or fall, else one that saw it rise; the tilt among equals.

    A curve that sees only the fall, beside another that sees a clear rise, has seen gold turn.
    """
    if any(reading.verdict is Verdict.RISES for reading in readings):
        readings = tuple(
            replace(r, verdict=Verdict.TURNS) if r.verdict is Verdict.FALLS else r for r in readings
        )
    rank = {Verdict.TURNS: 0, Verdict.FALLS: 0, Verdict.RISES: 1, Verdict.UNCLEAR: 2}
    return tuple(sorted(readings, key=lambda reading: rank[reading.verdict]))


def agreement(scored: Scored, shares_BP: Floats) -> Interval | None:
    """Correlation of proxy and gold within a prompt, over the reference's completions; none where one never varies."""
    own = scored.of_reference()
    proxy_PN, gold_PN = centred(own.proxy_PN), centred(own.gold_PN)
    sums_3P = np.stack(
        [
            (proxy_PN * gold_PN).sum(axis=1),
            (proxy_PN**2).sum(axis=1),
            (gold_PN**2).sum(axis=1),
        ]
    )

    def correlation(sums_3X: Floats) -> Floats:
        scale_X = np.sqrt(sums_3X[1] * sums_3X[2])
        return sums_3X[0][scale_X > 0] / scale_X[scale_X > 0]

    value = correlation(sums_3P.sum(axis=1)[:, None])
    if not len(value):
        return None
    # A draw of prompts in which one of them never varies has no correlation either.
    return interval(float(value[0]), correlation(sums_3P @ shares_BP.T))


_Steps = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""``[G, G]``, for each pair of points i < k: whether gold clearly rises from i to k; whether it clearly falls."""


def _first(steps_GG: NDArray[np.bool_]) -> int | None:
    """The first point that differs clearly from an earlier one."""
    found = np.flatnonzero(steps_GG.any(axis=0))
    return int(found[0]) if len(found) else None


def _verdict(steps: _Steps, *, may_peak_at_start: bool) -> Verdict:
    """What gold does along the curve.

    "Falls" needs all of: a clear fall below the reference, no clear rise, and a peak that may as
    well be the reference itself. A clear fall without these comes after some height: it turns.
    """
    rises_GG, falls_GG = steps
    if not falls_GG.any():
        return Verdict.RISES if rises_GG.any() else Verdict.UNCLEAR
    only_falls = bool(falls_GG[0].any()) and not rises_GG.any() and may_peak_at_start
    return Verdict.FALLS if only_falls else Verdict.TURNS


def _clear_steps(gold_G: Floats, gold_BG: Floats, num_prompts: int) -> _Steps:
    rises, falls = (np.zeros((len(gold_G),) * 2, dtype=bool) for _ in range(2))
    if num_prompts < MIN_PROMPTS or len(gold_G) < 2:
        return rises, falls
    first, second = np.triu_indices(len(gold_G), 1)
    step = gold_G[second] - gold_G[first]
    step_BX = gold_BG[:, second] - gold_BG[:, first]
    # The bootstrap's variance is that of n, not n - 1 (Efron & Tibshirani 1993, eq. 5.12).
    se = step_BX.std(axis=0) * math.sqrt(num_prompts / (num_prompts - 1))
    moves = se > 1e-12 * max(1.0, float(np.abs(gold_G).max()))
    if not moves.any():
        # Every prompt agrees to the last digit: what differs at all, differs clearly.
        rises[first, second], falls[first, second] = step > 1e-12, step < -1e-12
        return rises, falls
    largest_B = (np.abs(step_BX - step)[:, moves] / se[moves]).max(axis=1)
    critical = float(np.quantile(largest_B, 1 - ERROR)) * math.sqrt(num_prompts / (num_prompts - 1))
    scaled = np.divide(step, se, out=np.zeros_like(step), where=moves)
    rises[first, second], falls[first, second] = scaled > critical, scaled < -critical
    return rises, falls


def _peak_interval(value: float, peak_kl_B: Floats, at_end_B: NDArray[np.bool_]) -> Interval:
    found = interval(value, peak_kl_B)
    return Interval(value, found.low, None if at_end_B.mean() > _OPEN else found.high)
