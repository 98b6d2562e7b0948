"""One run: its steps, and what its controller did."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from controllers_swings import HIGH, LOW, swing_steps, swings_of
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SMOOTHED = 3
"""Steps over which a KL is meaned before it is compared with its target."""


def smoothed(values_T: Floats) -> Floats:
    """Mean of a step and the two before it (of what there is, at the start)."""
    sums = np.cumsum(np.concatenate([np.zeros(1), values_T]))
    ends = np.arange(1, len(values_T) + 1)
    starts = np.maximum(ends - SMOOTHED, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


@dataclass(frozen=True)
class Run:
    """Steps of one run, from the first."""

    kl_T: Floats
    """nats/token, of the rollout before the step's update."""
    beta_T: Floats
    target_T: Floats

    @property
    def relative_T(self) -> Floats:
        """KL, smoothed, over its target."""
        return smoothed(self.kl_T) / self.target_T

    @property
    def reach(self) -> int | None:
        """First step (from 1) at which the smoothed KL is at its target."""
        there = np.flatnonzero(self.relative_T >= 1)
        return int(there[0]) + 1 if len(there) else None

    @property
    def control_step(self) -> int | None:
        """First step (from 1) from which KL, smoothed, is under control.

        It has come to `LOW` times its target, and stays at `HIGH` times or less to the end. None where it never
        comes, or is above at the end. A later fall below `LOW` is not counted: a penalty is there to keep KL down.
        """
        there, above = (
            np.flatnonzero(where) for where in (self.relative_T >= LOW, self.relative_T > HIGH)
        )
        if not len(there):
            return None
        step = max(int(there[0]) + 1, int(above[-1]) + 2 if len(above) else 1)
        return step if step <= len(self.kl_T) else None

    def late_errors(self) -> Floats:
        """log(KL / target) in the last third."""
        start = len(self.kl_T) - len(self.kl_T) // 3
        return np.log(self.kl_T[start:] / self.target_T[start:])


def first_step(is_there_T: NDArray[np.bool_], reach: int | None) -> float:
    """The first step (from 1) that is so, in a series that begins at step ``reach``; nan where none is."""
    places = np.flatnonzero(is_there_T)
    return float((reach or 0) + places[0]) if len(places) else math.nan


def measure(run: Run) -> dict[str, float]:
    """What the controller of one run did; logarithms of factors where a name says ``log``.

    Steps from 1; nan where there is none, but in ``control_by_end`` the step after the last.
    """
    late, reach, log_beta_T = run.late_errors(), run.reach, np.log(run.beta_T)
    after = run.relative_T[reach - 1 :] if reach else np.zeros(0)
    beta_after = run.beta_T[reach - 1 :] if reach else np.zeros(0)
    swings, period = swings_of(after)
    crossed = swing_steps(after)
    third, num = len(run.kl_T) // 3, len(run.kl_T)
    return {
        "log_end": float(log_beta_T[-1] - log_beta_T[0]),
        "log_moved": float(log_beta_T.max() - log_beta_T.min()),
        "log_lowest": float(log_beta_T.min()),
        "log_highest": float(log_beta_T.max()),
        "log_at_target": float(log_beta_T[reach - 1]) if reach else math.nan,
        "log_late_beta": float(log_beta_T[-third:].mean()),
        "log_mid_kl": float(np.log(run.kl_T[third : num - third]).mean()),
        "log_late_kl": float(np.log(run.kl_T[-third:]).mean()),
        "log_end_error": float(np.log(run.relative_T[-1])),
        "start_again": first_step(beta_after >= run.beta_T[0], reach),
        "back": first_step(after < 1, reach),
        "first_swing": float(crossed[0]) if crossed else math.nan,
        "reach": float(reach or math.nan),
        "reach_by_end": float(reach or num),
        "control": float(run.control_step or math.nan),
        "control_by_end": float(run.control_step or num + 1),
        "log_overshoot": float(np.log(after.max())) if reach else math.nan,
        "log_error": float(late.mean()),
        "error_sd": float(late.std(ddof=1)),
        "error_rms": float(np.sqrt((late**2).mean())),
        "swings": swings,
        "period": period,
    }
