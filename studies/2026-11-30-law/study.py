"""The over-optimisation law: how peak KL and height of gold depend on the proxy, and what beta changes.

python studies/2026-11-30-law/study.py    about 15 minutes on two cores; flags: studies/experiment.py
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from experiment import Block, Study, curves, interval_words, main, save_figure

from kltune.spec.load import load_spec
from kltune.statistics.arms import at_end, at_kl, mean_of, stop_place, when_stopped
from kltune.statistics.law import LawForm, law_basis, peak_kl, point_weights
from kltune.statistics.law_errors import Coefficients

Floats = NDArray[np.float64]

DRAWS = range(300, 308)
"""Seeds of the proxy's comparisons, noise and fit: a draw is the unit of replication. Fixed before the first run."""
RUN_SEED = 100
"""Draw i is trained with seed RUN_SEED + i."""
NO_KL = "no KL"
PRICED = "k1-reward 0.15"


@dataclass(frozen=True)
class Proxy:
    """How a proxy is learned."""

    comparisons: int = 1600
    """Pairs of the reference's completions that gold judges."""
    noise: float = 0.2
    """Share of labels that are flipped."""
    layers: int = 3
    """Of the base that the reward model keeps; the base has 3."""

    @property
    def name(self) -> str:
        """The level's name."""
        return f"{self.comparisons} comparisons, noise {self.noise:g}, {self.layers} layers"


COMPARISONS = tuple(Proxy(comparisons=number) for number in (100, 400, 1600, 6400))
NOISE = tuple(Proxy(noise=noise) for noise in (0.0, 0.2, 0.4))
LAYERS = tuple(Proxy(layers=layers) for layers in (1, 3))
LEVELS = tuple(dict.fromkeys((*COMPARISONS, *NOISE, *LAYERS)))

SMALL_LEVELS = (Proxy(100, 0.4), Proxy(800, 0.0))
SMALL_SIZE: dict[str, object] = {"trainer.steps": 10}
"""Scaled down for the tests."""


def block_name(proxy: Proxy, draw: int) -> str:
    """Of the runs of one draw of one level."""
    return f"c{proxy.comparisons}-n{proxy.noise:g}-l{proxy.layers}-d{draw}"


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """A block for each draw of each level: its proxy is learned anew."""
    found: dict[str, Block] = {}
    levels, draws, fit, size = (
        (SMALL_LEVELS, DRAWS[:2], 30, SMALL_SIZE) if small else (LEVELS, DRAWS, 150, {})
    )
    for proxy in levels:
        for i, draw in enumerate(draws):
            arms: dict[str, dict[str, object]] = {NO_KL: {"beta": 0.0}}
            if proxy == Proxy() and not small:
                arms[PRICED] = {"beta": 0.15, "penalty": "k1-reward"}
            found[block_name(proxy, draw)] = Block(
                arms, (RUN_SEED + i,), {**_learned(proxy, fit), "seed": draw, **size}
            )
    return found


def _learned(proxy: Proxy, steps: int) -> dict[str, object]:
    fields: dict[str, object] = {
        "from": "gold",
        "comparisons": proxy.comparisons,
        "label_noise": proxy.noise,
        "steps": steps,
        "layers": proxy.layers,
    }
    return {"task": {"builtin": "kitchen", "proxy": {"learned": fields}}}


SHIPPED = "shipped"
"""The proxy that the task comes with, of which there is one draw."""
PENALTIES = Path(__file__).parents[1] / "2026-11-30-penalties" / "runs.csv"
"""Runs of k1-reward at three betas under the shipped proxy, of the study beside this one."""
PENALTY_ARMS = ("k1-reward 0.05", "k1-reward 0.15", "k1-reward 0.5")
KLS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Nats per sequence at which curves are compared. Fixed before the runs were looked at."""
BANDS = {"0.25 to 1.5": (0.25, 1.5), "1.5 to 3.8": (1.5, 3.8)}
"""Nats per sequence; the last n of best-of-n has 3.86."""
LAW_TO = 10.0
"""Nats per sequence to which the law is tested once more."""
SPEED_STEPS = (15, 30, 60)
"""Steps at which KL is compared."""
FEWEST = 3
"""Draws that must have reached a KL."""
COMPLETIONS = 128
"""Of each prompt and draw, for best-of-n."""
BOOT = 2000
"""Bootstrap draws over draws of the proxy."""

AXES: dict[str, tuple[tuple[Proxy, ...], Callable[[Proxy], float], str]] = {
    "comparisons": (COMPARISONS, lambda p: math.log(p.comparisons / 100, 4), "four times as many"),
    "noise": (NOISE, lambda p: p.noise / 0.2, "20 points more"),
    "layers": (LAYERS, lambda p: (p.layers - 1) / 2, "3 layers instead of 1"),
}
"""By axis: the levels along it, their place, and what one step of that is."""


@dataclass(frozen=True)
class Runs:
    """Runs of one level without a penalty (or of one arm): S draws x C evaluations, the first the start."""

    gold_SC: Floats
    proxy_SC: Floats
    kl_SC: Floats
    step_C: tuple[int, ...]
    """Steps; of best-of-n, n."""

    @property
    def gain_SC(self) -> Floats:
        """Gold over the start."""
        return self.gold_SC - self.gold_SC[:, :1]

    def only(self, s: int) -> Runs:
        """Of one draw."""
        one = slice(s, s + 1)
        return Runs(self.gold_SC[one], self.proxy_SC[one], self.kl_SC[one], self.step_C)

    def mean(self, num: int) -> Runs:
        """The mean curve, as if every one of so many draws had it."""
        parts = (
            np.tile(v.mean(axis=0), (num, 1)) for v in (self.gold_SC, self.proxy_SC, self.kl_SC)
        )
        return Runs(*parts, self.step_C)


def finish(small: bool, out: Path) -> None:
    """bon.csv and proxies.csv, from the proxies that the runs learned."""
    law_bon = importlib.import_module("law_bon")  # loads torch

    levels = SMALL_LEVELS if small else LEVELS

    def proxies(draw: int) -> dict[str, Path]:
        found = {p: out / "runs" / block_name(p, draw) / "artifacts" / "proxy" for p in levels}
        return {level_of(block_name(p, draw)): path for p, path in found.items() if path.is_dir()}

    # The levels share prompts and completions with each other, so that they are compared draw by draw.
    draws = (
        law_bon.Draws(DRAWS[:2], 8, 24, 8) if small else law_bon.Draws(DRAWS, COMPLETIONS, 64, 32)
    )
    size = tuple(f"{key}={value}" for key, value in SMALL_SIZE.items()) if small else ()
    spec = load_spec(Path(__file__).parent / "spec.yaml", size)
    bon, facts = law_bon.trace_proxies(spec, proxies, draws)
    bon.to_csv(out / "bon.csv", index=False, float_format="%.5g")
    facts.to_csv(out / "proxies.csv", index=False, float_format="%.5g")


def level_of(block: str) -> str:
    """A block's level, without the draw."""
    return block.rsplit("-d", 1)[0]


def analyse(
    runs: pd.DataFrame,
    _steps: pd.DataFrame,
    bon: pd.DataFrame,
    proxies: pd.DataFrame,
    shipped: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """What the runs say of the law, of beta and of best-of-n; intervals over draws of the proxy."""
    # One start for all: the reference on the same prompts, of many completions.
    on_train, bon = bon[bon["split"] == "train"], bon[bon["split"] == "select"]
    start = float(bon.loc[bon["n"] == 1].drop_duplicates("draw")["gold"].mean())
    of_level = {level: _runs_of(runs, level, NO_KL, start) for level in _levels(runs)}
    if shipped is None and PENALTIES.is_file():
        shipped = pd.read_csv(PENALTIES)
    curves_bon = {
        level: _bon_runs(bon, level) for level in (*of_level, SHIPPED) if level in set(bon["level"])
    }
    found: dict[str, Any] = {
        "runs": len(runs.groupby(["block", "arm", "seed"])),
        "start": start,
        "start_by_draw": _mean(bon.loc[bon["n"] == 1].drop_duplicates("draw")["gold"].to_numpy()),
        "levels": {
            level: {
                **_level(own, proxies[proxies["level"] == level]),
                "best_of_n": _best_of_n(curves_bon[level], own),
                "best_of_n_on_train": _peak_of_n(_bon_runs(on_train, level)),
            }
            for level, own in of_level.items()
        },
    }
    found["reject"] = {
        **_rejections(found["levels"]),
        "together": _together(of_level, LawForm.RL),
        "within": _bend_within(of_level, LAW_TO),
        "together_at_best_of_n_form": _together(of_level, LawForm.BEST_OF_N),
    }
    found["trends"] = _trends(of_level, curves_bon, proxies)
    for axis, told in found["trends"].items():
        told["bon_train_peak_gain"] = _bon_trend(axis, on_train)
    found["by_agreement"] = _by_agreement(of_level, found["levels"])
    found["frontier"] = _frontiers(runs, shipped, start)
    if shipped is not None:
        own = _runs_of(shipped, "arms", NO_KL, start)
        found[SHIPPED] = {
            **_level(own, proxies[proxies["level"] == SHIPPED].head(1)),
            # One proxy: its curve is known well, and the runs are of other draws.
            "best_of_n": _best_of_n(
                curves_bon[SHIPPED], own, curves_bon[SHIPPED].mean(len(own.gold_SC))
            ),
            "best_of_n_on_train": _peak_of_n(_bon_runs(on_train, SHIPPED)),
            "bon": {
                str(n): _mean(curves_bon[SHIPPED].gain_SC[:, c])
                for c, n in enumerate(curves_bon[SHIPPED].step_C)
                if n > 1
            },
        }
    return found


def _levels(runs: pd.DataFrame) -> list[str]:
    there = {level_of(block) for block in runs["block"].unique()}
    names = (level_of(block_name(p, 0)) for p in dict.fromkeys((*LEVELS, *SMALL_LEVELS)))
    return [name for name in names if name in there]


def _runs_of(runs: pd.DataFrame, level: str, arm: str, start: float) -> Runs:
    """Of one arm at one level; the start is ``start``, which all runs share."""
    mine = runs[(runs["block"].map(level_of) == level) & (runs["arm"] == arm)].assign(block=level)
    gold, proxy, kl = (curves(mine, c)[arm].copy() for c in ("gold", "proxy", "kl_seq"))
    gold[:, 0], proxy[:, 0] = start, proxy[:, 0].mean()
    return Runs(gold, proxy, kl, tuple(sorted(mine["step"].unique())))


def _bon_runs(bon: pd.DataFrame, level: str) -> Runs:
    """Best-of-n as if it were runs: draws x n."""
    mine = bon[bon["level"] == level]
    gold, proxy, kl = (
        mine.pivot_table(index="draw", columns="n", values=c).to_numpy()
        for c in ("gold", "proxy", "kl")
    )
    return Runs(gold, proxy, kl, tuple(sorted(mine["n"].unique())))


def _mean(values_S: Floats, comparisons: int = 1) -> dict[str, Any]:
    """Mean with interval over the draws that have a value."""
    seen = np.asarray(values_S, dtype=np.float64)
    seen = seen[np.isfinite(seen)]
    if len(seen) < 2:
        return {"mean": None, "low": None, "high": None, "sd": None, "num": len(seen)}
    return asdict(mean_of(seen, comparisons))


# -- one level -----------------------------------------------------------------------------------------------


def _level(own: Runs, proxies: pd.DataFrame) -> dict[str, Any]:
    gold_sd = float(proxies["gold_sd"].mean())
    proxy_end = at_end(own.proxy_SC) - own.proxy_SC[:, 0]
    gain_end = at_end(own.gain_SC)
    return {
        "trained_on": float(proxies["trained_on"].mean()),
        "label_accuracy": _mean(proxies["label_accuracy"].to_numpy()),
        "agreement": _mean(proxies["agreement"].to_numpy()),
        "agreement_train": _mean(proxies["agreement_train"].to_numpy()),
        "peak": {
            # Each draw at the evaluation where the other draws' gold is highest: unbiased.
            "gain": _mean(when_stopped(own.gain_SC)),
            # Each draw at its own highest: biased upwards by the noise of an evaluation.
            "highest": _mean(own.gain_SC[:, 1:].max(axis=1)),
            **_peak_place(own),
        },
        "end": {
            "gain": _mean(gain_end),
            "kl": _factor(at_end(own.kl_SC)),
            "proxy_gain": _mean(proxy_end),
            "gap_sd": _mean(proxy_end - gain_end / gold_sd),
        },
        "kl_by_step": dict(zip(map(str, own.step_C), _middle_kl(own.kl_SC), strict=True)),
        "fall": _mean(gain_end - when_stopped(own.gain_SC)),
        "law": _law(own, LawForm.RL),
        "other_form": _law(own, LawForm.BEST_OF_N)["misfit_p"],
    }


def _peak_place(own: Runs) -> dict[str, Any]:
    """KL where the mean curve is highest; interval by bootstrap over draws."""
    rng = np.random.default_rng(0)
    num = len(own.gain_SC)
    drawn = [_peak_kl_of(own, rng.integers(num, size=num)) for _ in range(BOOT)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    place = stop_place(own.gain_SC)
    kl = _peak_kl_of(own, np.arange(num))
    return {"step": int(own.step_C[place]), "kl": kl, "kl_low": low, "kl_high": high}


def _peak_kl_of(own: Runs, members: NDArray[np.int64]) -> float:
    return float(_middle_kl(own.kl_SC[members])[stop_place(own.gain_SC[members])])


def _middle_kl(kl_SC: Floats) -> Floats:
    """Geometric mean over draws, since a run or two may go ten times as far as the others; 0 at the start."""
    return np.concatenate([[0.0], np.exp(np.log(kl_SC[:, 1:]).mean(axis=0))])


def _law(own: Runs, form: LawForm) -> dict[str, Any]:
    """The law of the average draw: fitted draw by draw, each at its own KL, and averaged."""
    two_SC, three_SC = _coefficients(own, form, 2), _coefficients(own, form, 3)
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
        "stretch_p": _hotelling(_off_law(own, two_SC, form, _cuts([own]))),
        "left": _left(own, two_SC, form),
    }
    return {**told, "misfit_p": min(1.0, 2 * min(told["bend_p"], told["stretch_p"]))}


def _cuts(runs: Sequence[Runs]) -> Floats:
    """KL between the stretches: a third of all evaluations each."""
    kl = np.concatenate([own.kl_SC[:, 1:].ravel() for own in runs])
    return np.quantile(kl, [1 / 3, 2 / 3])


def _off_law(own: Runs, values_SC: Floats, form: LawForm, cuts: Floats) -> Floats:
    """Mean departure of each draw's gold from its own law, by stretch of KL; 0 where a draw has nothing there."""
    off = np.zeros((len(values_SC), len(cuts) + 1))
    for s, value_C in enumerate(values_SC):
        kl_P, gain_P = own.kl_SC[s, 1:], own.gain_SC[s, 1:]
        rest_P = gain_P - law_basis(np.sqrt(kl_P), form) @ value_C
        place_P = np.searchsorted(cuts, kl_P)
        for k in set(place_P):
            off[s, k] = rest_P[place_P == k].mean()
    return off


def _hotelling(off_SK: Floats) -> float:
    """Whether the means over draws are off 0 together."""
    num, size = off_SK.shape
    if num <= size:
        return 1.0
    error_KK = np.cov(off_SK.T) / num
    square = float(off_SK.mean(axis=0) @ np.linalg.pinv(error_KK) @ off_SK.mean(axis=0))
    factor = (num - size) / ((num - 1) * size)
    return float(stats.f.sf(square * factor, size, num - size))


def _coefficients(own: Runs, form: LawForm, terms: int) -> Floats:
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


def _together(of_level: Mapping[str, Runs], form: LawForm) -> dict[str, Any]:
    """The same two tests with each draw's departures averaged over the levels."""
    cuts = _cuts(list(of_level.values()))
    own = list(of_level.values())
    off_SK = np.mean([_off_law(r, _coefficients(r, form, 2), form, cuts) for r in own], axis=0)
    bend_S = np.mean([_coefficients(r, form, 3)[:, 2] for r in own], axis=0)
    p_values = (_spread(bend_S[:, None]).p_value(0), _hotelling(off_SK))
    return {
        "bend": float(bend_S.mean()),
        "bend_p": p_values[0],
        "stretch_p": p_values[1],
        "misfit_p": min(1.0, 2 * min(p_values)),
        "kl_cuts": cuts.tolist(),
        "off": [_mean(off_S, len(cuts) + 1) for off_S in off_SK.T],
    }


def _bend_within(of_level: Mapping[str, Runs], kl: float) -> dict[str, float]:
    """The test for a bend on the evaluations up to a KL alone, of the runs that have four or more there."""
    bends: list[Floats] = []
    for own in of_level.values():
        gold_SC = np.where(own.kl_SC <= kl, own.gold_SC, np.nan)
        few_S = np.isfinite(gold_SC[:, 1:]).sum(axis=1) < 4
        near = Runs(gold_SC, own.proxy_SC, own.kl_SC, own.step_C)
        bend_S = _coefficients(near, LawForm.RL, 3)[:, 2]
        bends.append(np.where(few_S, np.nan, bend_S))
    seen = np.array(bends)
    there = np.isfinite(seen).any(axis=0)
    if not there.any():  # of a run scaled down: too few evaluations
        return {"kl": kl, "bend": float("nan"), "bend_p": 1.0}
    mean_S = np.nanmean(seen[:, there], axis=0)
    p_value = _spread(mean_S[:, None]).p_value(0) if len(mean_S) > 1 else 1.0
    return {"kl": kl, "bend": float(mean_S.mean()), "bend_p": p_value}


def _rejections(levels: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
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
        "rl_at_best_of_n_form": told({level: own["other_form"] for level, own in levels.items()}),
        "best_of_n": told(
            {level: own["best_of_n"]["law"]["misfit_p"] for level, own in levels.items()}
        ),
        "levels": len(levels),
    }


# -- trends --------------------------------------------------------------------------------------------------


def _trends(
    of_level: Mapping[str, Runs], bon: Mapping[str, Runs], proxies: pd.DataFrame
) -> dict[str, Any]:
    """By axis and measure: the change for one step of the axis, a slope for each draw; an axis's measures each alone."""
    found: dict[str, Any] = {}
    for axis, (levels, place, step) in AXES.items():
        names = [level_of(block_name(p, 0)) for p in levels]
        if not set(names) <= set(of_level):
            continue
        x_L = np.array([place(p) for p in levels])
        told: dict[str, Any] = {"step": step, "levels": names}
        for measure, of in _MEASURES.items():
            values_LS = np.array([of(of_level[name], bon[name]) for name in names])
            told[measure] = _mean(_slopes(x_L, values_LS), len(AXES))
        for kind in ("agreement", "agreement_train"):
            seen_LS = np.array(
                [proxies[proxies["level"] == name].sort_values("draw")[kind] for name in names]
            )
            told[kind] = _mean(_slopes(x_L, seen_LS), len(AXES))
        told["peak_kl_factor"] = _peak_trend(x_L, [of_level[name] for name in names])
        found[axis] = told
    return found


def _bon_trend(axis: str, bon: pd.DataFrame) -> dict[str, Any]:
    levels, place, _ = AXES[axis]
    values_LS = np.array(
        [when_stopped(_bon_runs(bon, level_of(block_name(p, 0))).gain_SC) for p in levels]
    )
    return _mean(_slopes(np.array([place(p) for p in levels]), values_LS), len(AXES))


def _slopes(x_L: Floats, values_LS: Floats) -> Floats:
    """Least-squares slope of each draw."""
    off_L = x_L - x_L.mean()
    return off_L @ values_LS / (off_L @ off_L)


def _by_agreement(
    of_level: Mapping[str, Runs], told: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Change of the peak and of the end for ten points more agreement with gold, over all levels; a slope a draw."""
    found: dict[str, Any] = {}
    for kind in ("agreement", "agreement_train"):
        x_L = np.array([told[level][kind]["mean"] for level in of_level]) / 0.1
        for measure in ("peak_gain", "end_gain"):
            of = _MEASURES[measure]
            values_LS = np.array([of(own, own) for own in of_level.values()])
            found[f"{measure}_by_{kind}"] = _mean(_slopes(x_L, values_LS))
    return found


def _law_part(own: Runs, index: int) -> Floats:
    return _coefficients(own, LawForm.RL, 2)[:, index]


_MEASURES: dict[str, Callable[[Runs, Runs], Floats]] = {
    "peak_gain": lambda own, _: when_stopped(own.gain_SC),
    "end_gain": lambda own, _: at_end(own.gain_SC),
    "log_end_kl": lambda own, _: np.log(at_end(own.kl_SC)),
    "a": lambda own, _: _law_part(own, 0),
    "b": lambda own, _: _law_part(own, 1),
    "bon_peak_gain": lambda _, bon: when_stopped(bon.gain_SC),
}


def _peak_trend(x_L: Floats, own_L: Sequence[Runs]) -> dict[str, float]:
    """Factor of the peak's KL for one step of the axis; draws are resampled for all levels at once."""
    rng = np.random.default_rng(0)
    num = len(own_L[0].gain_SC)

    def factor(members: NDArray[np.int64]) -> float:
        logs = np.log([_peak_kl_of(own, members) for own in own_L])
        return math.exp(float(_slopes(x_L, logs)))

    drawn = [factor(rng.integers(num, size=num)) for _ in range(BOOT)]
    low, high = np.quantile(drawn, [0.025 / len(AXES), 1 - 0.025 / len(AXES)])
    return {"mean": factor(np.arange(num)), "low": float(low), "high": float(high), "num": num}


# -- beta ----------------------------------------------------------------------------------------------------


def _frontiers(runs: pd.DataFrame, shipped: pd.DataFrame | None, start: float) -> dict[str, Any]:
    middle = level_of(block_name(Proxy(), 0))
    found: dict[str, Any] = {}
    if PRICED in set(runs["arm"]):
        arms = {PRICED: _runs_of(runs, middle, PRICED, start)}
        found["middle"] = _frontier(_runs_of(runs, middle, NO_KL, start), arms)
    if shipped is not None:
        arms = {arm: _runs_of(shipped, "arms", arm, start) for arm in PENALTY_ARMS}
        found[SHIPPED] = _frontier(_runs_of(shipped, "arms", NO_KL, start), arms)
    return found


def _frontier(free: Runs, arms: Mapping[str, Runs]) -> dict[str, Any]:
    """Gold of each arm less that without a penalty at equal KL, and KL at equal step; paired."""
    cells = len(arms) * len(KLS)
    return {
        arm: {
            "at_kl": {f"{kl:g}": _at_equal_kl(free, own, kl, cells) for kl in KLS},
            # Each errs to one side, since a chord lies below a hump: see `_off_at`.
            "at_free": _mean(_off_at(own, free), len(arms)),
            "at_priced": _mean(-_off_at(free, own), len(arms)),
            "held": _held(free, own, len(arms)),
            "speed": {
                str(step): _factor(own.kl_SC[:, c], free.kl_SC[:, c])
                for c, step in enumerate(own.step_C)
                if step in SPEED_STEPS
            },
            "peak_gain": _mean(when_stopped(own.gain_SC) - when_stopped(free.gain_SC), len(arms)),
            "end_gain": _mean(at_end(own.gain_SC) - at_end(free.gain_SC), len(arms)),
            "kl_end": _factor(at_end(own.kl_SC)),
        }
        for arm, own in arms.items()
    }


def _passing(own: Runs, kl: float) -> Floats:
    """Gold when a run first reached ``kl``, between evaluations by the root of KL, in which gold is straighter."""
    return at_kl(own.gold_SC, np.sqrt(own.kl_SC), math.sqrt(kl))


def _at_equal_kl(free: Runs, own: Runs, kl: float, cells: int) -> dict[str, Any]:
    off_S = _passing(own, kl) - _passing(free, kl)
    return _enough(off_S, cells)


def _enough(values_S: Floats, comparisons: int) -> dict[str, Any]:
    """A mean, if enough draws got there."""
    seen = int(np.isfinite(values_S).sum())
    return _mean(values_S, comparisons) if seen >= FEWEST else {"mean": None, "num": seen}


def _off_at(curve: Runs, points: Runs, low: float = 0.25, high: float = math.inf) -> Floats:
    """Mean, over the evaluations of ``points`` between two KL, of what ``curve`` has more at that KL; draw by draw.

    Only ``curve`` is read between its evaluations, where a straight line lies below a hump: what errs is
    told, to its disadvantage. nan where a draw has no evaluation there that ``curve`` reached too.
    """
    found: list[float] = []
    for s in range(len(points.gold_SC)):
        own = curve.only(s)
        top = min(high, float(own.kl_SC.max()))
        seen = (points.kl_SC[s] >= low) & (points.kl_SC[s] <= top)
        off = [
            _passing(own, kl)[0] - gold
            for kl, gold in zip(points.kl_SC[s][seen], points.gold_SC[s][seen], strict=True)
        ]
        found.append(float(np.mean(off)) if off else math.nan)
    return np.array(found)


def _held(free: Runs, own: Runs, comparisons: int) -> dict[str, Any]:
    """A run's second half, which a penalty holds near one KL, against the other run when it passed that KL."""
    half = own.kl_SC.shape[1] // 2 + 1
    kl_S, gold_S = own.kl_SC[:, half:].mean(axis=1), own.gold_SC[:, half:].mean(axis=1)
    passed_S = np.array([_passing(free.only(s), kl)[0] for s, kl in enumerate(kl_S)])
    return {"kl": float(kl_S.mean()), **_mean(gold_S - passed_S, comparisons)}


def _factor(a_S: Floats, b_S: Floats | float = 1.0) -> dict[str, Any]:
    """Geometric mean of a ratio (or of a KL) with its interval."""
    found = _mean(np.log(a_S / b_S))
    return {k: math.exp(v) if k in ("mean", "low", "high") else v for k, v in found.items()}


# -- best-of-n -----------------------------------------------------------------------------------------------


def _best_of_n(bon: Runs, own: Runs, curve: Runs | None = None) -> dict[str, Any]:
    """Gain over the start of the best of n, and what RL has more at equal KL, at RL's own evaluations.

    ``curve``: what RL is compared with, if not draw by draw.
    """
    other = bon if curve is None else curve
    return {
        "peak": _peak_of_n(bon),
        "law": _law(bon, LawForm.BEST_OF_N),
        "rl_less_bon": {
            name: _enough(-_off_at(other, own, *band), len(BANDS) + 1)
            for name, band in BANDS.items()
        },
        "rl_less_bon_at_peak": _mean(
            when_stopped(own.gain_SC) - when_stopped(other.gain_SC), len(BANDS) + 1
        ),
    }


def _peak_of_n(bon: Runs) -> dict[str, Any]:
    """Each draw at the n that is best for the others; n and KL of the mean curve's highest."""
    place = stop_place(bon.gain_SC)
    kl, n = float(bon.kl_SC[0, place]), int(bon.step_C[place])
    return {"gain": _mean(when_stopped(bon.gain_SC)), "kl": kl, "n": n}


# -- figures -------------------------------------------------------------------------------------------------

ORDERED = ("#440154", "#31688e", "#35b779", "#c2a000")
"""From few to many; told apart by lightness too."""
BON = "#555555"


def draw(runs: pd.DataFrame, _steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """law.png: gold by KL for each axis; quality.png: heights by axis; beta.png: beta and best-of-n at equal KL."""
    start, bon = results["start"], pd.read_csv(out / "bon.csv")
    bon = bon[bon["split"] == "select"]
    there = set(results["levels"])
    axes = {a: names for a, names in _names_by_axis().items() if set(names) <= there}
    if not axes:
        return
    of_level = {level: _runs_of(runs, level, NO_KL, start) for level in there}
    save_figure(out / "law.png", 9, 3.6, lambda f: _draw_law(f, axes, of_level, results))
    save_figure(out / "quality.png", 9, 3.2, lambda f: _draw_quality(f, axes, results))
    panels = _beta_panels(runs, bon, start)
    save_figure(out / "beta.png", 9, 3.8, lambda f: _draw_beta(f, panels, start))


def _names_by_axis() -> dict[str, list[str]]:
    return {
        axis: [level_of(block_name(p, 0)) for p in levels] for axis, (levels, _, _) in AXES.items()
    }


def _label(axis: str, level: str) -> str:
    comparisons, noise, layers = (part[1:] for part in level.split("-"))
    return {"comparisons": comparisons, "noise": f"{float(noise):.0%}", "layers": layers}[axis]


_TITLES = {
    "comparisons": "comparisons",
    "noise": "share of labels flipped",
    "layers": "layers of the reward model",
}


def _draw_law(
    figure: Any,
    axes: Mapping[str, list[str]],
    of_level: Mapping[str, Runs],
    results: Mapping[str, Any],
) -> None:
    panels = figure.subplots(1, len(axes), sharey=True, squeeze=False)[0]
    for panel, (axis, names) in zip(panels, axes.items(), strict=True):
        for colour, level in zip(_colours(len(names)), names, strict=True):
            own = of_level[level]
            _curve(panel, own.kl_SC, own.gold_SC, colour, _label(axis, level))
            law = results["levels"][level]["law"]
            d_P = np.sqrt(np.linspace(0.05, _middle_kl(own.kl_SC).max(), 200))
            value = law_basis(d_P, LawForm.RL) @ np.array([law["a"]["mean"], law["b"]["mean"]])
            panel.plot(d_P**2, results["start"] + value, color=colour, ls=":", lw=1)
        _kl_axis(panel)
        panel.legend(
            title=_TITLES[axis],
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=4,
            handlelength=1.2,
            columnspacing=1,
        )
    panels[0].set_ylabel("gold (hand-written), select prompts")


def _colours(num: int) -> list[str]:
    return [ORDERED[round(i * (len(ORDERED) - 1) / max(1, num - 1))] for i in range(num)]


def _kl_axis(panel: Any) -> None:
    panel.set_xscale("function", functions=(np.sqrt, np.square))
    top = panel.get_xlim()[1]
    ticks = [t for t in (0, 0.5, 2, 5, 10, 20, 40, 80) if t <= top and (t != 0.5 or top < 30)]
    panel.set_xlim(left=0)
    panel.set_xticks(ticks, [f"{t:g}" for t in ticks])
    panel.minorticks_off()
    panel.set_xlabel("KL, nats/sequence (square-root scale)")
    panel.axhline(0, color="#cccccc", lw=0.6, zorder=0)


def _curve(
    panel: Any, kl_SC: Floats, gold_SC: Floats, colour: str, label: str, **style: Any
) -> None:
    """Means over draws with 95 % intervals of gold."""
    kl_C, gold_C = _middle_kl(kl_SC), gold_SC.mean(axis=0)
    panel.plot(kl_C, gold_C, color=colour, label=label, lw=1.4, ms=3, **{"marker": "o", **style})
    if style.get("marker") == "":
        return
    half_C = [0.0 if np.ptp(c) == 0 else mean_of(c).high - c.mean() for c in gold_SC.T]
    panel.errorbar(kl_C, gold_C, half_C, color=colour, ls="", lw=0.7, alpha=0.5)


def _draw_quality(figure: Any, axes: Mapping[str, list[str]], results: Mapping[str, Any]) -> None:
    panels = figure.subplots(1, len(axes), sharey=True, squeeze=False)[0]
    series = (
        ("RL, stopped at the peak", "#31688e", "o", lambda own: own["peak"]["gain"]),
        ("best-of-n at its best n", BON, "s", lambda own: own["best_of_n"]["peak"]["gain"]),
        ("RL, last step", "#c2410c", "^", lambda own: own["end"]["gain"]),
    )
    for panel, (axis, names) in zip(panels, axes.items(), strict=True):
        for shift, (label, colour, marker, of) in zip((-0.08, 0.0, 0.08), series, strict=True):
            told = [of(results["levels"][level]) for level in names]
            mean, low, high = (np.array([t[k] for t in told]) for k in ("mean", "low", "high"))
            place = np.arange(len(names)) + shift
            panel.errorbar(
                place,
                mean,
                [mean - low, high - mean],
                color=colour,
                marker=marker,
                ms=4,
                lw=1,
                label=label,
            )
        panel.set_xticks(range(len(names)), [_label(axis, level) for level in names])
        panel.set_xlim(-0.4, len(names) - 0.6)
        panel.set_xlabel(_TITLES[axis])
        panel.axhline(0, color="#cccccc", lw=0.6, zorder=0)
    panels[0].set_ylabel("gold over the start")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)


def _beta_panels(
    runs: pd.DataFrame, bon: pd.DataFrame, start: float
) -> list[tuple[str, Mapping[str, Runs], Runs]]:
    middle = level_of(block_name(Proxy(), 0))
    arms = {arm: _runs_of(runs, middle, arm, start) for arm in (NO_KL, PRICED)}
    found = [("8 learned proxies (middle level)", arms, _bon_runs(bon, middle))]
    if PENALTIES.is_file():
        table = pd.read_csv(PENALTIES)
        arms = {arm: _runs_of(table, "arms", arm, start) for arm in (NO_KL, *PENALTY_ARMS)}
        found.append(("the shipped proxy, 8 seeds", arms, _bon_runs(bon, SHIPPED)))
    return found


def _draw_beta(
    figure: Any, panels: Sequence[tuple[str, Mapping[str, Runs], Runs]], start: float
) -> None:
    colours = {
        NO_KL: "#000000",
        **dict(zip(PENALTY_ARMS, ("#c2a000", "#31688e", "#c2410c"), strict=True)),
    }
    places = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for place, (title, arms, bon) in zip(places, panels, strict=True):
        for arm, own in arms.items():
            _curve(place, own.kl_SC, own.gold_SC, colours[arm], arm)
        _curve(place, bon.kl_SC, bon.gain_SC + start, BON, "best-of-n", ls="--", marker="")
        place.set_xlim(0, LAW_TO)
        place.set_ylim(-0.6, 1.4)
        _kl_axis(place)
        place.set_title(title)
    figure.legend(*places[-1].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    places[0].set_ylabel("gold (hand-written), select prompts")


# -- tables --------------------------------------------------------------------------------------------------


def tables(results: dict[str, Any]) -> dict[str, str]:
    """For README.md."""
    levels = {proxy.name: results["levels"][level_of(block_name(proxy, 0))] for proxy in LEVELS}
    return {
        "levels": _levels_table(levels),
        "law": _law_table(levels),
        "trends": _trends_table(results),
        "frontier": _frontier_table(results["frontier"]),
        "best-of-n": _bon_table(levels, results),
    }


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _words(found: Mapping[str, Any], digits: int = 2) -> str:
    return "-" if found.get("mean") is None else interval_words(found, digits)


def _levels_table(levels: Mapping[str, Mapping[str, Any]]) -> str:
    head = (
        "proxy",
        "right on held-out labels",
        "orders select pairs as gold",
        "train pairs",
        "highest gold over the start",
        "at KL",
    )
    head += ("gold over the start, last step", "KL, last step", "proxy gain less gold gain, in SD")
    return _markdown(
        head,
        [
            (
                name,
                f"{own['label_accuracy']['mean']:.3f}",
                _words(own["agreement"]),
                _words(own["agreement_train"]),
                _words(own["peak"]["gain"]),
                f"{own['peak']['kl']:.1f} ({own['peak']['kl_low']:.1f} to {own['peak']['kl_high']:.1f})",
                _words(own["end"]["gain"]),
                _words(own["end"]["kl"], 1),
                _words(own["end"]["gap_sd"]),
            )
            for name, own in levels.items()
        ],
    )


def _law_table(levels: Mapping[str, Mapping[str, Any]]) -> str:
    head = (
        "proxy",
        "a",
        "b",
        "KL of the law's peak",
        "gold over the start there",
        "p: bend",
        "p: stretches",
        "left",
    )
    rows: list[tuple[str, ...]] = []
    for name, own in levels.items():
        law = own["law"]
        rows.append(
            (
                name,
                _words(law["a"]),
                _words(law["b"]),
                _peak_words(law),
                "-" if _peak_words(law) == "not identified" else f"{law['gain_peak']:.2f}",
                f"{law['bend_p']:.2g}",
                f"{law['stretch_p']:.2g}",
                f"{law['left']:.2f}",
            )
        )
    return _markdown(head, rows)


def _peak_words(law: Mapping[str, Any]) -> str:
    """No figure where any peak would do: b can't be told from 0."""
    if law["kl_peak"] is None or law["kl_high"] is None:
        return "not identified"
    return f"{law['kl_peak']:.2g} ({law['kl_low'] or 0:.2g} to {law['kl_high']:.2g})"


_MEASURE_WORDS = {
    "agreement": "orders pairs as gold, select prompts (share)",
    "agreement_train": "orders pairs as gold, train prompts (share)",
    "peak_gain": "highest gold over the start",
    "end_gain": "gold over the start, last step",
    "bon_peak_gain": "best-of-n's highest gold over the start",
    "bon_train_peak_gain": "the same on train prompts",
    "peak_kl_factor": "KL at the peak, factor",
    "log_end_kl": "KL at the last step, factor",
    "a": "a of the law",
    "b": "b of the law",
}


def _trends_table(results: Mapping[str, Any]) -> str:
    trends = results["trends"]
    head = ["change of", *(f"{axis}: {told['step']}" for axis, told in trends.items())]
    rows: list[list[str]] = []
    for measure, words in _MEASURE_WORDS.items():
        cells = [_words(_as_factor(measure, told[measure])) for told in trends.values()]
        rows.append([words, *cells])
    return _markdown(head, rows)


def _as_factor(measure: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    if not measure.startswith("log_"):
        return found
    return {k: math.exp(v) if k in ("mean", "low", "high") else v for k, v in found.items()}


def _frontier_table(frontier: Mapping[str, Any]) -> str:
    names = {"middle": "middle level, 8 draws", SHIPPED: "shipped proxy, 8 seeds"}
    head = [
        "proxy",
        "beta",
        *(f"at {kl:g}" for kl in KLS),
        "at the evaluations without KL",
        "at those under it",
        "held",
        "KL at step 30, factor",
    ]
    rows: list[list[str]] = []
    for where, arms in frontier.items():
        for arm, own in arms.items():
            cells = [_with_num(own["at_kl"][f"{kl:g}"]) for kl in KLS]
            cells += [
                _with_num(own["at_free"]),
                _with_num(own["at_priced"]),
                f"{_with_num(own['held'])} at {own['held']['kl']:.1f}",
            ]
            cells.append(_words(own["speed"]["30"]))
            rows.append([names[where], arm.removeprefix("k1-reward "), *cells])
    return _markdown(head, rows)


def _with_num(found: Mapping[str, Any]) -> str:
    if found["mean"] is None:
        return f"- [{found['num']}]"
    return _words(found) if found["num"] == len(DRAWS) else f"{_words(found)} [{found['num']}]"


def _bon_table(levels: Mapping[str, Mapping[str, Any]], results: Mapping[str, Any]) -> str:
    head = ["proxy", "best-of-n: highest gold over the start", "at n", "KL", "on train prompts"]
    head += [*(f"RL less best-of-n, KL {name}" for name in BANDS), "each at its peak"]
    rows: list[list[str]] = []
    everything = dict(levels)
    if SHIPPED in results:
        everything["shipped"] = results[SHIPPED]
    for name, own in everything.items():
        bon = own["best_of_n"]
        cells = [_words(bon["peak"]["gain"]), str(bon["peak"]["n"]), f"{bon['peak']['kl']:.2g}"]
        cells.append(_words(own["best_of_n_on_train"]["gain"]))
        cells += [_with_num(bon["rl_less_bon"][band]) for band in BANDS]
        rows.append([name, *cells, _words(bon["rl_less_bon_at_peak"])])
    return _markdown(head, rows)


STUDY = Study(
    Path(__file__).parent,
    blocks,
    analyse,
    draw,
    tables,
    finish=finish,
    more=("bon.csv", "proxies.csv"),
    processes=2,
)

if __name__ == "__main__":
    main(STUDY)
