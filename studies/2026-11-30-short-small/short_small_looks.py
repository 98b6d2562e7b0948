"""What a look of some seeds chooses, and what that is worth on seeds that it didn't see.

Shapes: K settings, S seeds, C evaluations (the first before any step), D redrawn sets of seeds, L looks
of one set (each with the seed that it is judged on).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from short_small_measures import Floats

Ints = NDArray[np.int64]
DRAWS = 300
"""Of the seeds, for a standard error."""


@dataclass(frozen=True, slots=True)
class Final:
    """Whole runs of the model that is decided for; gold by setting and seed."""

    stopped_KS: Floats
    """At the evaluation where the other seeds' gold is highest."""
    end_KS: Floats
    """At the last step."""
    curves_KSC: Floats


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval: bootstrap's standard error over seeds times Student's t."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Looks:
    """All looks of one number of seeds at one model, D sets of seeds x L looks; the first set is the seeds as they are."""

    judged_DL: Ints
    """The seed that each is judged on, which it doesn't hold."""
    weight_DL: Floats
    """Of each in a mean: judged seeds weigh the same, copies too. 0 for a look that holds no seed, since in a redrawn
    set copies of the judged seed are left out of it."""
    means_KCDL: Floats
    """Gold, mean over the look's seeds; 0 where it holds none."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What choosing by such looks means."""

    lost: Estimate
    """Gold of the best setting, whichever that is, less that of the chosen one; never below 0."""
    minus_always: tuple[Estimate, ...]
    """By setting: gold of the chosen one, less that of typing this one without a look, which for ``look_stop`` runs to
    its last step."""
    minus_random: Estimate
    """The same for a setting at random."""
    minus_random_without_largest: Estimate
    """For one at random of all but the last."""
    gain_D: Floats
    """What ``minus_random`` is made of, by set of seeds."""
    chosen_K: Floats
    """Share of the looks that choose each setting."""
    redrawn_K: Floats
    """The same where seeds are redrawn with replacement."""
    stop_costs: Estimate
    """Gold of the chosen setting stopped where the other seeds' whole runs say, less that stopped where the look says; 0
    where the look names no stop."""
    places_C: Floats
    """Share of the looks that see the chosen setting's peak at each evaluation; 0 where the look names no stop."""


def redrawn_seeds(num_seeds: int, draws: int = DRAWS) -> Ints:
    """D x S: the seeds as they are, then ``draws`` sets of as many, drawn with replacement."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(num_seeds, size=(draws, num_seeds))
    return np.concatenate([np.arange(num_seeds)[None], drawn])


def all_looks(gold_KSC: Floats, num_look: int, draws_DS: Ints) -> Looks:
    """Every ``num_look`` of the other seeds, for each seed in turn."""
    num = draws_DS.shape[1]
    pairs = [
        (t, part)
        for t in range(num)
        for part in combinations([s for s in range(num) if s != t], num_look)
    ]
    judged_DL = draws_DS[:, [t for t, _ in pairs]]
    holds_LS = np.array([np.isin(np.arange(num), part) for _, part in pairs], dtype=float)
    count_DLS = holds_LS @ np.eye(num)[draws_DS]
    np.put_along_axis(count_DLS, judged_DL[..., None], 0.0, axis=2)
    valid_DTP = (count_DLS.sum(axis=2) > 0).reshape(len(draws_DS), num, -1)
    num_DT1 = np.maximum(valid_DTP.sum(axis=2, keepdims=True), 1)
    weight_DL = (valid_DTP / num_DT1).reshape(judged_DL.shape)
    return Looks(judged_DL, weight_DL, _means(gold_KSC, count_DLS))


def decide(looks: Looks, num_evals: int, final: Final, goal: str) -> Looked:
    """Choose by the first ``num_evals`` evaluations of each look, judge on its seed.

    ``goal``: ``stopped``, ``at_end``, or ``look_stop``, where the chosen setting is stopped where the look's mean gold
    was highest.
    """
    chosen_DL, place_DL = _choices(looks.means_KCDL[:, :num_evals], goal)
    best_KS = final.end_KS if goal == "at_end" else final.stopped_KS
    typed_KS = final.stopped_KS if goal == "stopped" else final.end_KS
    if goal == "look_stop":
        worth_DL = final.curves_KSC[chosen_DL, looks.judged_DL, place_DL]
    else:
        worth_DL = best_KS[chosen_DL, looks.judged_DL]
    lost_KD = _mean_over_looks(best_KS[:, looks.judged_DL] - worth_DL, looks.weight_DL)
    gain_KD = _mean_over_looks(worth_DL - typed_KS[:, looks.judged_DL], looks.weight_DL)
    stop_DL = best_KS[chosen_DL, looks.judged_DL] - worth_DL
    num_arms, num_seeds = best_KS.shape
    return Looked(
        regret([with_error(one_D, num_seeds) for one_D in lost_KD]),
        tuple(with_error(one_D, num_seeds) for one_D in gain_KD),
        with_error(gain_KD.mean(axis=0), num_seeds),
        with_error(gain_KD[:-1].mean(axis=0), num_seeds),
        gain_KD.mean(axis=0),
        _shares(chosen_DL[0], num_arms),
        _shares(chosen_DL[1:][looks.weight_DL[1:] > 0], num_arms),
        with_error(_mean_over_looks(stop_DL[None], looks.weight_DL)[0], num_seeds),
        _shares(place_DL[0], num_evals) if goal == "look_stop" else np.zeros(num_evals),
    )


def regret(lost: Sequence[Estimate]) -> Estimate:
    """Loss against the best setting where it isn't known which that is, from the loss against each.

    The loss against the truly best one lies below its own upper limit, so the highest of the upper limits holds for it.
    """
    mean, low, high = (
        max(0.0, *(getattr(one, name) for one in lost)) for name in ("mean", "low", "high")
    )
    return Estimate(mean, low, high)


def with_error(values_D: Floats, num_seeds: int) -> Estimate:
    """The first value, with the interval that follows from the others, which are the same of redrawn seeds.

    The factor sqrt(S / (S - 1)) makes that of a plain mean the usual one of Student's t.
    """
    value, drawn_D = float(values_D[0]), values_D[1:]
    drawn_D = drawn_D[np.isfinite(drawn_D)]
    spread = float(np.std(drawn_D)) * math.sqrt(num_seeds / (num_seeds - 1))
    half = float(stats.t.isf(0.025, num_seeds - 1)) * spread
    return Estimate(value, value - half, value + half)


def rank_on_other_seeds(
    seen_KSC: Floats, late_KS: Floats, goal: str, draws_DS: Ints
) -> Estimate | None:
    """Spearman's correlation of a look at half of the seeds with whole runs of the others, mean over all halves.

    None: too few settings for an order, or too few seeds.
    """
    num = draws_DS.shape[1]
    if len(seen_KSC) < 3 or num < 4:
        return None
    halves_LS = np.array(
        [np.isin(np.arange(num), one) for one in combinations(range(num), num // 2)]
    )
    one_hot_DSS = np.eye(num)[draws_DS]
    early_DLS, late_DLS = (part.astype(float) @ one_hot_DSS for part in (halves_LS, ~halves_LS))
    early_DLS = np.where(late_DLS > 0, 0.0, early_DLS)  # a copy of a judged seed isn't another seed
    valid_DL = early_DLS.sum(axis=2) > 0
    value_KDL = _values(_means(seen_KSC, early_DLS), goal)
    late_KDL = _means(late_KS[:, :, None], late_DLS)[:, 0]
    agreed_DL = _correlation(value_KDL, late_KDL)
    weight_DL = (valid_DL & np.isfinite(agreed_DL)).astype(float)
    agreed_D = _mean_over_looks(np.nan_to_num(agreed_DL)[None], weight_DL)[0]
    found = with_error(agreed_D, num)
    return Estimate(found.mean, max(-1.0, found.low), min(1.0, found.high))


def _means(values_KSC: Floats, count_DLS: Floats) -> Floats:
    """K x C x D x L: mean over the seeds of each look; 0 where it has none."""
    num_arms, num, evals = values_KSC.shape
    share_NS = (count_DLS / np.maximum(count_DLS.sum(axis=2, keepdims=True), 1.0)).reshape(-1, num)
    means = values_KSC.transpose(0, 2, 1).reshape(-1, num) @ share_NS.T
    return means.reshape(num_arms, evals, *count_DLS.shape[:2])


def _values(means_KCDL: Floats, goal: str) -> Floats:
    """What each setting is chosen by: its highest gold after the start, or its last two evaluations."""
    if goal == "at_end":
        return means_KCDL[:, -2:].mean(axis=1)
    return means_KCDL[:, 1:].max(axis=1)


def _choices(means_KCDL: Floats, goal: str) -> tuple[Ints, Ints]:
    """The chosen setting, and the evaluation of its highest gold after the start."""
    chosen_DL = _values(means_KCDL, goal).argmax(axis=0)
    if goal != "look_stop":
        return chosen_DL, np.zeros_like(chosen_DL)
    own_CDL = np.take_along_axis(means_KCDL, chosen_DL[None, None], axis=0)[0]
    return chosen_DL, 1 + own_CDL[1:].argmax(axis=0)


def _mean_over_looks(values_KDL: Floats, weight_DL: Floats) -> Floats:
    """K x D; nan where no look counts."""
    total_D = weight_DL.sum(axis=1)
    sum_KD = (values_KDL * weight_DL).sum(axis=2)
    return np.where(total_D > 0, sum_KD / np.where(total_D > 0, total_D, 1.0), np.nan)


def _correlation(a_KDL: Floats, b_KDL: Floats) -> Floats:
    """Spearman's, over settings; nan where all are equal."""
    ranks = [stats.rankdata(one, axis=0) for one in (a_KDL, b_KDL)]
    a, b = (one - one.mean(axis=0) for one in ranks)
    size = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    return np.where(size > 0, (a * b).sum(axis=0) / np.where(size > 0, size, 1.0), np.nan)


def _shares(places: Ints, num: int) -> Floats:
    return np.bincount(places.ravel(), minlength=num) / max(1, places.size)
