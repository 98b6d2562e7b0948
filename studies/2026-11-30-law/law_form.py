"""Whether gold follows the law: its fit to the average draw, and the tests of its form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from law_intervals import mean_of_draws
from law_runs import Floats, Runs
from scipy import stats

from kltune.statistics.law import LawForm, law_basis, peak_kl, point_weights
from kltune.statistics.law_errors import Coefficients


def fitted_law(own: Runs, form: LawForm) -> dict[str, Any]:
    """The law of the average draw: fitted draw by draw, each at its own KL, and averaged."""
    two_SC, three_SC = coefficients(own, form, 2), coefficients(own, form, 3)
    found = _spread(two_SC)
    peak = peak_kl(found, form)
    a, b = (found.interval(np.eye(2)[i]) for i in range(2))
    bend = _spread(three_SC)
    d_peak = math.sqrt(peak.value) if peak.value > 0 and math.isfinite(peak.value) else math.nan
    gain = (
        math.nan
        if math.isnan(d_peak)
        else float((law_basis(np.array([d_peak]), form) @ found.value_C)[0])
    )
    told = {
        "a": {"mean": a.value, "low": a.low, "high": a.high},
        "b": {"mean": b.value, "low": b.low, "high": b.high},
        "kl_peak": peak.value,
        "kl_low": peak.low,
        "kl_high": peak.high,
        "gain_peak": gain,
        "bend_p": bend.p_value(2),
        **_stretch_tests(
            [_off_law(own, two_SC, form, _cuts([own]))], [_off_by_rank(own, two_SC, form)]
        ),
        "left": _left(own, two_SC, form),
    }
    return {**told, "misfit_p": min(1.0, 2 * min(told["bend_p"], told["stretch_p"]))}


def coefficients(own: Runs, form: LawForm, terms: int) -> Floats:
    """Least squares of every draw, weighted as in `kltune.statistics.law`: S x terms."""
    used_SC = (own.kl_SC > 0) & np.isfinite(own.gain_SC)
    middle = float(np.median(np.sqrt(own.kl_SC[used_SC])))
    found: list[Floats] = []
    for gain_C, kl_C, seen in zip(own.gain_SC, own.kl_SC, used_SC, strict=True):
        d_P = np.sqrt(kl_C[seen])
        root_P = point_weights(d_P, middle)
        basis = law_basis(d_P, form, terms)
        found.append(np.linalg.lstsq(root_P[:, None] * basis, root_P * gain_C[seen], rcond=None)[0])
    return np.array(found)


def _spread(values_SC: Floats) -> Coefficients:
    """Their mean, and the error of it by the scatter between draws."""
    num, terms = values_SC.shape
    error_CC = np.atleast_2d(np.cov(values_SC.T)) / num
    return Coefficients(values_SC.mean(axis=0), error_CC, num - 1, np.zeros((terms, terms)), 1)


def _left(own: Runs, values_SC: Floats, form: LawForm) -> float:
    """Root mean square of what each draw's own law leaves, in gold."""
    rest: list[Floats] = []
    for gain_C, kl_C, value_C in zip(own.gain_SC, own.kl_SC, values_SC, strict=True):
        seen = kl_C > 0
        rest.append(gain_C[seen] - law_basis(np.sqrt(kl_C[seen]), form) @ value_C)
    return float(np.sqrt(np.mean(np.concatenate(rest) ** 2)))


def _cuts(runs: Sequence[Runs]) -> Floats:
    """KL between the stretches: a third of all evaluations each."""
    kl = np.concatenate([own.kl_SC[:, 1:].ravel() for own in runs])
    return np.quantile(kl, [1 / 3, 2 / 3])


def _off_law(own: Runs, values_SC: Floats, form: LawForm, cuts: Floats) -> Floats:
    """Mean departure of each draw's gold from its own law, by stretch of KL; nan where a draw has nothing there."""
    off = np.full((len(values_SC), len(cuts) + 1), np.nan)
    for s, rest_P in enumerate(_departures(own, values_SC, form)):
        place_P = np.searchsorted(cuts, own.kl_SC[s, 1:])
        for k in set(place_P):
            off[s, k] = rest_P[place_P == k].mean()
    return off


def _off_by_rank(own: Runs, values_SC: Floats, form: LawForm) -> Floats:
    """Likewise by the thirds of each draw's own evaluations in the order of KL, so that every draw has all three."""
    found: list[list[float]] = []
    for rest_P, kl_P in zip(_departures(own, values_SC, form), own.kl_SC[:, 1:], strict=True):
        thirds = np.array_split(rest_P[np.argsort(kl_P)], 3)
        found.append([float(third.mean()) if len(third) else math.nan for third in thirds])
    return np.array(found)


def _departures(own: Runs, values_SC: Floats, form: LawForm) -> list[Floats]:
    """Gold less each draw's own law, at the evaluations after the start."""
    return [
        gain_C[1:] - law_basis(np.sqrt(kl_C[1:]), form) @ value_C
        for gain_C, kl_C, value_C in zip(own.gain_SC, own.kl_SC, values_SC, strict=True)
    ]


def _stretch_tests(off_L: Sequence[Floats], ranked_L: Sequence[Floats]) -> dict[str, float]:
    """P values of the departures, meaned over levels: as fixed before the runs, and two ways thought of afterwards.

    ``stretch_p`` counts a draw without evaluations in a stretch as 0 there: true on average under the law, but it
    can move p either way. ``left_out`` leaves it out; ``ranked`` cuts each draw's own evaluations into thirds.
    """
    return {
        "stretch_p": _hotelling(np.mean([np.nan_to_num(off) for off in off_L], axis=0)),
        "stretch_p_left_out": _hotelling(_mean_seen(off_L)),
        "stretch_p_ranked": _hotelling(_mean_seen(ranked_L)),
    }


def _mean_seen(off_L: Sequence[Floats]) -> Floats:
    """Mean over the levels that have a value; nan where none has."""
    seen = np.isfinite(off_L)
    count_SK = seen.sum(axis=0)
    total_SK = np.where(seen, off_L, 0.0).sum(axis=0)
    return np.where(count_SK > 0, total_SK / np.maximum(1, count_SK), np.nan)


def _hotelling(off_SK: Floats) -> float:
    """Whether the means over draws are off 0 together, by the draws that have a value in each column."""
    off_SK = off_SK[np.isfinite(off_SK).all(axis=1)]
    num, size = off_SK.shape
    if num <= size:
        return 1.0
    error_KK = np.cov(off_SK.T) / num
    square = float(off_SK.mean(axis=0) @ np.linalg.pinv(error_KK) @ off_SK.mean(axis=0))
    factor = (num - size) / ((num - 1) * size)
    return float(stats.f.sf(square * factor, size, num - size))


def together(of_level: Mapping[str, Runs], form: LawForm) -> dict[str, Any]:
    """The same two tests with each draw's departures averaged over the levels."""
    cuts = _cuts(list(of_level.values()))
    own = list(of_level.values())
    two_L = [coefficients(r, form, 2) for r in own]
    off_L = [_off_law(r, two, form, cuts) for r, two in zip(own, two_L, strict=True)]
    ranked_L = [_off_by_rank(r, two, form) for r, two in zip(own, two_L, strict=True)]
    bend_S = np.mean([coefficients(r, form, 3)[:, 2] for r in own], axis=0)
    bend_p, tests = _spread(bend_S[:, None]).p_value(0), _stretch_tests(off_L, ranked_L)
    return {
        "bend": float(bend_S.mean()),
        "bend_p": bend_p,
        **tests,
        "misfit_p": min(1.0, 2 * min(bend_p, tests["stretch_p"])),
        "missing": int(sum(np.isnan(off).any(axis=1).sum() for off in off_L)),
        "kl_cuts": cuts.tolist(),
        "off": [mean_of_draws(off_S, len(cuts) + 1) for off_S in _mean_seen(off_L).T],
    }


def bend_within(of_level: Mapping[str, Runs], kl: float) -> dict[str, float]:
    """The test for a bend on the evaluations up to a KL alone, of the runs that have four or more there."""
    bends: list[Floats] = []
    for own in of_level.values():
        gold_SC = np.where(own.kl_SC <= kl, own.gold_SC, np.nan)
        few_S = np.isfinite(gold_SC[:, 1:]).sum(axis=1) < 4
        near = Runs(gold_SC, own.proxy_SC, own.kl_SC, own.step_C)
        bend_S = coefficients(near, LawForm.RL, 3)[:, 2]
        bends.append(np.where(few_S, np.nan, bend_S))
    seen = np.array(bends)
    there = np.isfinite(seen).any(axis=0)
    if not there.any():  # of a run scaled down: too few evaluations
        return {"kl": kl, "bend": float("nan"), "bend_p": 1.0}
    mean_S = np.nanmean(seen[:, there], axis=0)
    p_value = _spread(mean_S[:, None]).p_value(0) if len(mean_S) > 1 else 1.0
    return {"kl": kl, "bend": float(mean_S.mean()), "bend_p": p_value}


def rejections(levels: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Levels whose gold is off the law, at 5 % for all levels together (Holm)."""

    def told(p_of: Mapping[str, float]) -> list[str]:
        found: list[str] = []
        for i, (level, p) in enumerate(sorted(p_of.items(), key=lambda item: item[1])):
            if not p <= 0.05 / (len(p_of) - i):
                break
            found.append(level)
        return found

    return {
        "rl": told({level: own["law"]["misfit_p"] for level, own in levels.items()}),
        **{f"rl_stretches_{way}": told(_misfit(levels, way)) for way in ("left_out", "ranked")},
        "rl_at_best_of_n_form": told({level: own["other_form"] for level, own in levels.items()}),
        "best_of_n": told(
            {level: own["best_of_n"]["law"]["misfit_p"] for level, own in levels.items()}
        ),
        "levels": len(levels),
    }


def _misfit(levels: Mapping[str, Mapping[str, Any]], way: str) -> dict[str, float]:
    laws = {level: own["law"] for level, own in levels.items()}
    return {
        level: min(1.0, 2 * min(law["bend_p"], law[f"stretch_p_{way}"]))
        for level, law in laws.items()
    }
