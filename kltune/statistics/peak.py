"""Gold of one trial by evaluation and prompt in; its peak, the steps that can't be told from it, and its value out.

All evaluations of a trial see the same prompts, so steps are compared prompt by prompt: what a
prompt adds to every step (an easy or a hard one) cancels. Two steps are told apart only where the
differences of all pairs of steps, looked at together, leave no doubt (95 % family-wise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE: Final = 0.95
"""Chance that all truly best steps are in the set, whatever their number."""

NUM_DRAWS: Final = 999
"""Sign flips of the prompts."""

SEED: Final = 5
"""Of the sign flips: the same record gives the same set."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """The value of the procedure "choose the best step on some prompts, use it on others"."""

    value: float
    """Gold. The step is chosen on one half of the prompts and valued on the other, and the other
    way round; both are averaged. It is not the gold of any one checkpoint."""
    se: float
    """Standard error over prompts, given the two steps; nan with fewer than two prompts. The choice
    itself adds to it, up to a sixth where all steps are equal."""
    chosen_steps: tuple[int, ...]
    """The step that each half chose; one entry where there was nothing to halve."""


@dataclass(frozen=True, slots=True)
class Peak:
    """Where a trial's gold is highest, and how far that can be told on these prompts."""

    step: int
    """Of the evaluation with the highest mean gold among the allowed ones, the earliest of equals."""
    value: float
    """Gold there: too high by luck, since it was picked as the highest."""
    se: float
    """Standard error over prompts; nan with fewer than two."""
    kl: float
    """KL there, in the unit that came in."""
    tied_steps: tuple[int, ...]
    """Steps that can't be told from the best, in order; the peak is one of them."""
    first_step: int
    last_step: int
    """The unbroken stretch of tied steps around the peak."""
    kl_low: float
    kl_high: float
    """Lowest and highest KL at the tied steps."""
    num_allowed: int
    last_allowed: int
    """The last step that could have been chosen."""
    procedure: Procedure

    @property
    def apart(self) -> tuple[int, ...]:
        """Tied steps beyond a gap: as good, but not in the stretch around the peak."""
        return tuple(s for s in self.tied_steps if not self.first_step <= s <= self.last_step)

    @property
    def is_open(self) -> bool:
        """Whether the best step may be the last one, so that more steps might have been better."""
        return self.last_allowed in self.tied_steps

    @property
    def is_told(self) -> bool:
        """Whether the prompts rule out any step at all."""
        return len(self.tied_steps) < self.num_allowed


def find_peak(
    gold_SN: Floats,
    steps_S: NDArray[np.int64],
    kl_S: Floats,
    allowed_S: NDArray[np.bool_],
    *,
    seed: int = SEED,
) -> Peak | None:
    """The peak among the allowed evaluations; none where no evaluation is allowed.

    The set of tied steps holds a step unless some other is better than it by more than all
    pairs of steps would show by chance (see `tied_with_best`).
    """
    chosen = np.flatnonzero(allowed_S)
    if not chosen.size:
        return None
    gold_CN = np.asarray(gold_SN, dtype=np.float64)[chosen]
    steps, kls = np.asarray(steps_S)[chosen], np.asarray(kl_S, dtype=np.float64)[chosen]
    best = _highest(gold_CN)
    is_tied = tied_with_best(gold_CN, seed=seed)
    first = last = best
    while first > 0 and is_tied[first - 1]:
        first -= 1
    while last + 1 < len(steps) and is_tied[last + 1]:
        last += 1
    return Peak(
        step=int(steps[best]),
        value=float(gold_CN[best].mean()),
        se=standard_error(gold_CN[best]),
        kl=float(kls[best]),
        tied_steps=tuple(int(step) for step in steps[is_tied]),
        first_step=int(steps[first]),
        last_step=int(steps[last]),
        kl_low=float(kls[is_tied].min()),
        kl_high=float(kls[is_tied].max()),
        num_allowed=len(steps),
        last_allowed=int(steps[-1]),
        procedure=value_of_procedure(gold_CN, steps),
    )


def tied_with_best(
    gold_CN: Floats, *, seed: int = SEED, confidence: float = CONFIDENCE, draws: int = NUM_DRAWS
) -> NDArray[np.bool_]:
    """Which rows can't be told from the best one; at least ``confidence`` that all best rows are.

    The paired difference of every two rows over its root mean square, and the largest of them
    under random signs of the prompts: a wild bootstrap over prompts (Liu 1988) of the maximum
    over all pairs (single-step max-t, Westfall & Young 1993), as in a model confidence set
    (Hansen, Lunde & Nason 2011). It holds whatever the correlation of the rows. Differences that
    are symmetric about their mean need no many prompts for it; with fewer than about 6 prompts
    nothing can be told and all rows are tied.
    """
    num_rows, num_prompts = gold_CN.shape
    later, earlier = np.tril_indices(num_rows, -1)
    pairs_PN = gold_CN[later] - gold_CN[earlier]
    size_P = np.sqrt((pairs_PN**2).sum(axis=1))
    # Equal rows up to rounding differ by nothing that could be told.
    is_real = size_P > 1e-12 * max(1.0, float(np.abs(gold_CN).max(initial=0.0)))
    later, earlier = later[is_real], earlier[is_real]
    if not later.size:
        return np.ones(num_rows, dtype=np.bool_)
    unit_PN = pairs_PN[is_real] / size_P[is_real, None]
    signs_BN = _signs(draws, num_prompts, seed)
    largest_B = np.abs(signs_BN @ unit_PN.T).max(axis=1)
    rank = min(draws, math.ceil(confidence * (draws + 1)))
    limit = float(np.partition(largest_B, rank - 1)[rank - 1]) * (1 + 1e-9)
    lead_P = unit_PN.sum(axis=1)
    is_tied = np.ones(num_rows, dtype=np.bool_)
    is_tied[earlier[lead_P > limit]] = False
    is_tied[later[lead_P < -limit]] = False
    return is_tied


def value_of_procedure(gold_CN: Floats, steps_C: NDArray[np.int64]) -> Procedure:
    """Choose on one half of the prompts, value on the other, swap and average.

    Prompts are halved by the parity of their index, as the trial's told value is
    (kltune.trial.objective.cross_valued gives the same number). With fewer than two prompts
    there is nothing to halve: the plain maximum.
    """
    num_prompts = gold_CN.shape[1]
    if num_prompts < 2:
        best = _highest(gold_CN)
        return Procedure(float(gold_CN[best].mean()), math.nan, (int(steps_C[best]),))
    picked = [_highest(gold_CN[:, parity::2]) for parity in (0, 1)]
    halves = [gold_CN[picked[parity], 1 - parity :: 2] for parity in (0, 1)]
    value = sum(float(half.mean()) for half in halves) / 2
    variance = sum(standard_error(half) ** 2 for half in halves) / 4
    return Procedure(value, math.sqrt(variance), tuple(int(steps_C[p]) for p in picked))


def standard_error(values_N: Floats) -> float:
    """Standard error of the mean (n - 1); nan for fewer than two values."""
    if values_N.size < 2:
        return math.nan
    return float(values_N.std(ddof=1)) / math.sqrt(values_N.size)


def _highest(gold_CN: Floats) -> int:
    """The row with the highest mean, the earliest of equals; exact sums, so that equals are equal."""
    means = [fmean(row) for row in gold_CN.tolist()]
    return means.index(max(means))


def _signs(draws: int, num_prompts: int, seed: int) -> Floats:
    bits = np.random.default_rng(seed).integers(0, 2, size=(draws, num_prompts), dtype=np.int8)
    return 2.0 * bits.astype(np.float64) - 1.0
