"""Estimators and placements at matched KL: gold, proxy, stability.

python studies/2026-11-30-penalties/study.py    about 15 minutes on two cores; flags: studies/experiment.py
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

from experiment import Block, Study, curves, interval_words, main, save_figure

from kltune.statistics.arms import at_end, at_kl, stop_place, when_stopped

Floats = NDArray[np.float64]
Found = dict[str, Any]
"""A number with its interval, as it stands in results.json."""

SEEDS = range(100, 108)
"""Fixed before the first run; none was used to make the task."""
NO_KL = "no KL"
BETAS = (0.05, 0.15, 0.5)
"""Raw reward per nat of sequence KL."""
SOUND = ("k1-reward", "exact-full", "k2-loss", "k3-loss")
BIASED = ("k1-loss", "k3-reward")
"""Refused unless allow_biased."""
K1 = SOUND[0]
LEVELS = (0.5, 1.0, 2.0, 3.0)
"""nats/sequence at which settings are compared."""
ENOUGH = 4
"""Seeds that must have reached a KL before it is compared."""


def arm(penalty: str, beta: float) -> str:
    """The name of a setting."""
    return f"{penalty} {beta:g}"


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """Settings x seeds."""
    if small:
        wanted = [("k1-reward", 0.5), ("k1-loss", 0.5)]
        size = {"model.base": "builtin:kitchen-small", "trainer.steps": 30, "evaluate.every": 10}
        seeds = SEEDS[:2]
    else:
        wanted = [(penalty, beta) for penalty in SOUND for beta in BETAS]
        wanted += [(penalty, beta) for penalty in BIASED for beta in BETAS[1:]]
        size, seeds = {}, SEEDS
    arms = {arm(p, b): {"beta": b, "penalty": p} for p, b in wanted}
    return {"arms": Block({NO_KL: {"beta": 0.0}, **arms}, seeds, {"allow_biased": True, **size})}


# ---------------------------------------------------------------- the arithmetic


def at_once(values_S: Floats, comparisons: int = 1) -> Found:
    """Mean over seeds with its 95 % interval; ``comparisons`` such intervals hold at once.

    Bonferroni's limit: settings have their own spreads and do not always share a reference.
    """
    num, mean = len(values_S), float(np.mean(values_S)) if len(values_S) else math.nan
    if num < 2:
        return {"mean": mean, "low": -math.inf, "high": math.inf, "half": math.inf, "num": num}
    spread = float(np.std(values_S, ddof=1)) / math.sqrt(num)
    half = float(stats.t.isf(0.025 / comparisons, num - 1)) * spread
    return {"mean": mean, "low": mean - half, "high": mean + half, "half": half, "num": num}


def factor_at_once(values_S: Floats, others_S: Floats | None = None, comparisons: int = 1) -> Found:
    """Geometric mean of values, or of their ratios to others, seed by seed, with its interval.

    ``half`` is the factor on either side.
    """
    logs = np.log(values_S) if others_S is None else np.log(values_S / others_S)
    found = at_once(logs, comparisons)
    return {k: v if k == "num" else _exp(v) for k, v in found.items()}


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)


def spread_ratio(values_S: Floats, others_S: Floats, comparisons: int = 1) -> Found:
    """Ratio of two spreads over the same seeds, with its interval (Pitman 1939, Morgan 1939)."""
    num = len(values_S)
    ratio = float(np.var(values_S, ddof=1) / np.var(others_S, ddof=1))
    if num < 3:
        return {"mean": math.sqrt(ratio), "low": 0.0, "high": math.inf, "num": num}
    r = float(np.corrcoef(values_S, others_S)[0, 1])
    limit = float(stats.t.isf(0.025 / comparisons, num - 2))
    k = 1 + 2 * (1 - r * r) * limit**2 / (num - 2)
    width = math.sqrt(k * k - 1)
    low, high = math.sqrt(ratio * (k - width)), math.sqrt(ratio * (k + width))
    return {"mean": math.sqrt(ratio), "low": low, "high": high, "num": num}


def spread(values_S: Floats) -> Found:
    """Standard deviation over seeds with its 95 % interval (chi squared)."""
    num, sd = len(values_S), float(np.std(values_S, ddof=1))
    low, high = (math.sqrt((num - 1) / stats.chi2.isf(p, num - 1)) for p in (0.025, 0.975))
    return {"mean": sd, "low": sd * low, "high": sd * high, "num": num}


def told(found: Mapping[str, float], null: float = 0.0) -> str:
    """Where an interval lies: ``below``, ``above`` or around (``untold``) a value."""
    if found["high"] < null:
        return "below"
    return "above" if found["low"] > null else "untold"


@dataclass(frozen=True)
class Data:
    """Curves by setting, S seeds x C evaluations."""

    gold: dict[str, Floats]
    proxy: dict[str, Floats]
    kl: dict[str, Floats]
    """nats/sequence."""
    kl_run: dict[str, Floats]
    """nats/sequence, geometric mean over the steps after the first; by seed."""
    steps: list[int]
    ended_early: list[str]
    """Runs without the last evaluation: they diverged."""
    seeds: list[int]

    @classmethod
    def of(cls, runs: pd.DataFrame, steps: pd.DataFrame) -> Data:
        """The curves in runs.csv and steps.csv."""
        last = runs.groupby(["arm", "seed"], sort=False)["step"].max()
        early = [f"{a}, seed {s}" for (a, s), step in last.items() if step < runs["step"].max()]
        parts = (curves(runs, column) for column in ("gold", "proxy", "kl_seq"))
        along = curves(steps[steps["step"] > 1], "kl_seq")
        kl_run = {name: np.exp(np.log(kl).mean(axis=1)) for name, kl in along.items()}
        return cls(
            *parts, kl_run, sorted(runs["step"].unique()), early, sorted(runs["seed"].unique())
        )

    def penalties(self) -> list[str]:
        """Those that were run."""
        return [p for p in (*SOUND, *BIASED) if self.arms_of(p)]

    def arms_of(self, penalty: str) -> list[str]:
        """The settings of a penalty, by rising beta."""
        names = [NO_KL] if penalty == NO_KL else [arm(penalty, beta) for beta in BETAS]
        return [name for name in names if name in self.gold]


# ---------------------------------------------------------------- the analysis


def analyse(runs: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
    """What each penalty did: at matched KL, at the end, over seeds; and the three published claims."""
    data = Data.of(runs, steps)
    found = {
        "runs": len(runs.groupby(["arm", "seed"])),
        "seeds": len(data.seeds),
        "ended_early": data.ended_early,
        "gold_start": at_once(data.gold[NO_KL][:, 0]),
        "settings": {name: _setting(data, name) for name in data.gold},
        "to_none": _to_none(data),
        "to_k1_reward": _to_k1_reward(data),
        "pooled_kl": _pooled(data),
        "beta_response": _beta_response(data),
        "best_beta": _best_beta(data),
        "matched": {
            "to_k1_reward": _matched(data, K1),
            "to_none": _matched(data, NO_KL),
        },
        "reached": _reached(data),
        "later": _later(data),
        "texts": _texts(runs),
    }
    return {**found, "claims": _claims(found)}


def _setting(data: Data, name: str) -> Found:
    gold = data.gold[name]
    end, start = at_end(gold), gold[:, 0]
    worst = int(np.argmin(end))
    return {
        "gold_end": at_once(end),
        "gold_stopped": at_once(when_stopped(gold)),
        "stop_step": int(data.steps[stop_place(gold)]),
        "gold_change": at_once(end - start, len(data.gold)),
        "proxy_end": at_once(at_end(data.proxy[name])),
        "kl_end": factor_at_once(at_end(data.kl[name])),
        "kl_largest": float(data.kl[name].max()),
        "sd": spread(end),
        "worst": float(end[worst]),
        "worst_seed": int(data.seeds[worst]),
        "seeds_below_start": int((end < start).sum()),
    }


def _to_none(data: Data) -> Found:
    """Every setting against no KL; the intervals of one measure hold at once."""
    count = len(data.gold) - 1
    ends, none = {k: at_end(v) for k, v in data.gold.items()}, at_end(data.gold[NO_KL])
    stopped = when_stopped(data.gold[NO_KL])
    return {
        name: {
            "gold_end": at_once(ends[name] - none, count),
            "gold_stopped": at_once(when_stopped(data.gold[name]) - stopped, count),
            "kl_end": factor_at_once(at_end(data.kl[name]), at_end(data.kl[NO_KL]), count),
            "sd": spread_ratio(ends[name], none, count),
        }
        for name in data.gold
        if name != NO_KL
    }


def _to_k1_reward(data: Data) -> Found:
    """Every setting against k1-reward of the same beta; the intervals of one measure hold at once."""
    pairs = [
        (arm(p, beta), arm(K1, beta))
        for p in data.penalties()
        for beta in BETAS
        if p != K1 and {arm(p, beta), arm(K1, beta)} <= set(data.gold)
    ]
    count = len(pairs)
    gold, kl = data.gold, data.kl
    return {
        name: {
            "gold_end": at_once(at_end(gold[name]) - at_end(gold[other]), count),
            "gold_stopped": at_once(when_stopped(gold[name]) - when_stopped(gold[other]), count),
            "kl_end": factor_at_once(at_end(kl[name]), at_end(kl[other]), count),
        }
        for name, other in pairs
    }


def _pooled(data: Data) -> Found:
    """KL by penalty over its betas of .15 and more, against no KL and against k1-reward.

    Per seed the mean of the logarithms; fewer and steadier comparisons than those of single settings.
    Twice: at the end, and along the whole run, where one late leap counts for less.
    """
    ends = {name: at_end(kl) for name, kl in data.kl.items()}
    return {"end": _pooled_ratios(data, ends), "run": _pooled_ratios(data, data.kl_run)}


def _pooled_ratios(data: Data, kl: Mapping[str, Floats]) -> Found:
    logs = {
        p: np.mean([np.log(kl[arm(p, b)]) for b in BETAS if _is_pooled(data, p, b)], axis=0)
        for p in data.penalties()
    }
    none, count = np.log(kl[NO_KL]), len(logs)
    found: Found = {}
    for p, own in logs.items():
        found[p] = {"to_none": factor_at_once(np.exp(own - none), comparisons=count)}
        if p != K1 and K1 in logs:
            ratio = np.exp(own - logs[K1])
            found[p]["to_k1_reward"] = factor_at_once(ratio, comparisons=count - 1)
    return found


def _beta_response(data: Data) -> Found:
    """KL at the end under beta .5 over that under .15, by penalty; all at once."""
    low, high = BETAS[1:]
    names = [p for p in data.penalties() if {arm(p, low), arm(p, high)} <= set(data.kl)]
    ends = {name: at_end(kl) for name, kl in data.kl.items()}
    return {p: factor_at_once(ends[arm(p, high)], ends[arm(p, low)], len(names)) for p in names}


def _is_pooled(data: Data, penalty: str, beta: float) -> bool:
    return beta in BETAS[1:] and arm(penalty, beta) in data.kl


def best_at_end(gold_BSC: Sequence[Floats]) -> Floats:
    """Gold at the end of each seed, at the beta that is best at the end on the *other* seeds."""
    ends_BS = np.array([at_end(gold) for gold in gold_BSC])
    seeds = range(ends_BS.shape[1])
    chosen = [int(np.argmax(np.delete(ends_BS, s, axis=1).mean(axis=1))) for s in seeds]
    return ends_BS[chosen, list(seeds)]


def best_when_stopped(gold_BSC: Sequence[Floats]) -> Floats:
    """Gold of each seed at the beta and evaluation that are best on the *other* seeds."""
    whole = np.array(gold_BSC)[:, :, 1:]
    found = []
    for s in range(whole.shape[1]):
        others_BC = np.delete(whole, s, axis=1).mean(axis=1)
        b, c = np.unravel_index(int(np.argmax(others_BC)), others_BC.shape)
        found.append(whole[b, s, c])
    return np.array(found)


def _best_beta(data: Data) -> Found:
    """Each penalty at its own best beta, chosen on other seeds, and against k1-reward; all at once."""
    names = [NO_KL, *data.penalties()]
    measures = {"end": best_at_end, "stopped": best_when_stopped}
    values = {
        how: {p: best([data.gold[name] for name in data.arms_of(p)]) for p in names}
        for how, best in measures.items()
    }
    count = len(names) - 1
    return {
        p: {
            how: {"gold": at_once(own[p])}
            | ({} if p == K1 else {"to_k1_reward": at_once(own[p] - own[K1], count)})
            for how, own in values.items()
        }
        for p in names
    }


def matched_difference(
    data: Data, column: str, penalty: str, reference: str, level: float
) -> tuple[Floats, int]:
    """Per seed the mean over betas of a penalty's value less the reference's, each when it first reached ``level``.

    A reference that is a penalty has the same beta. Seeds without a pair are left out. Also: the pairs.
    """
    table: dict[str, Floats] = getattr(data, column)
    rows = []
    for beta in BETAS:
        mine, other = arm(penalty, beta), NO_KL if reference == NO_KL else arm(reference, beta)
        if {mine, other} <= set(table):
            own = at_kl(table[mine], data.kl[mine], level)
            rows.append(own - at_kl(table[other], data.kl[other], level))
    whole_BS = np.array(rows)
    has = np.isfinite(whole_BS)
    seeds = has.any(axis=0)
    sums = np.where(has, whole_BS, 0.0).sum(axis=0)
    return sums[seeds] / has.sum(axis=0)[seeds], int(has.sum())


def _matched(data: Data, reference: str) -> Found:
    """Gold and proxy at matched KL against ``reference``; the intervals of one measure hold at once."""
    if reference not in (NO_KL, *data.penalties()):
        return {}
    cells = {
        (level, p): {c: matched_difference(data, c, p, reference, level) for c in ("gold", "proxy")}
        for level in LEVELS
        for p in data.penalties()
        if p != reference
    }
    count = sum(len(cell["gold"][0]) >= ENOUGH for cell in cells.values())
    found: Found = {f"{level:g}": {} for level in LEVELS}
    for (level, p), cell in cells.items():
        seeds, pairs = len(cell["gold"][0]), cell["gold"][1]
        mine: Found = {"seeds": seeds, "pairs": pairs}
        if seeds >= ENOUGH:
            mine |= {column: at_once(cell[column][0], count) for column in ("gold", "proxy")}
        found[f"{level:g}"][p] = mine
    return {"comparisons": count, "levels": found}


def _reached(data: Data) -> Found:
    """Seeds of each setting that reached a KL; at that KL, of those seeds: step, gold, proxy."""
    return {
        name: {f"{level:g}": _at_level(data, name, level) for level in LEVELS} for name in data.gold
    }


def _at_level(data: Data, name: str, level: float) -> Found:
    kl = data.kl[name]
    clock = np.broadcast_to(np.array(data.steps, dtype=float), kl.shape)
    step, gold, proxy = (
        at_kl(values, kl, level) for values in (clock, data.gold[name], data.proxy[name])
    )
    there = np.isfinite(step)
    found: Found = {"seeds": int(there.sum())}
    if there.any():
        parts = {"step": step, "gold": gold, "proxy": proxy}
        found |= {key: float(values[there].mean()) for key, values in parts.items()}
    return found


def _later(data: Data) -> Found:
    """Gold at the end less gold when the run first had the KL that it ends with: what time does at one KL; all at once."""
    found = {}
    for name, kl_SC in data.kl.items():
        firsts = [
            at_kl(gold_C[None], kl_C[None], kl)[0]
            for gold_C, kl_C, kl in zip(data.gold[name], kl_SC, at_end(kl_SC), strict=True)
        ]
        found[name] = at_once(at_end(data.gold[name]) - np.array(firsts), len(data.kl))
    return found


def _texts(runs: pd.DataFrame) -> Found:
    """Length and entropy of completions at the end, by setting, beside those before training."""
    found: Found = {}
    for column in ("tokens", "entropy_token"):
        for name, table in curves(runs, column).items():
            own = found.setdefault(name, {})
            own[column] = at_once(at_end(table))
            own[f"{column}_start"] = float(table[:, 0].mean())
    return found


def _claims(found: Found) -> Found:
    """The three published findings, each by a rule that was written before the data."""
    settings, best = found["settings"], found["best_beta"]
    claims: Found = {}
    if K1 in best:
        claims["k1-reward is best"] = {how: _is_best(best, how) for how in ("end", "stopped")}
    collapsing = {
        name: _collapse(one) for name, one in settings.items() if name.startswith("k3-reward")
    }
    idle = {name: _idle(found, name) for name in settings if name.startswith("k1-loss")}
    return {**claims, "k3-reward collapses": collapsing, "k1-loss does nothing": idle}


def _is_best(best: Found, how: str) -> Found:
    """Holds where every other penalty lies below k1-reward; does not where one lies above it."""
    others = {p: one[how]["to_k1_reward"] for p, one in best.items() if p not in (K1, NO_KL)}
    where = {p: told(one) for p, one in others.items()}
    holds = all(word == "below" for word in where.values())
    word = "holds" if holds else "does not" if "above" in where.values() else "can't be told"
    return {
        "verdict": word,
        "where": where,
        "largest_half": max(one["half"] for one in others.values()),
        "smallest_half": min(one["half"] for one in others.values()),
    }


def _collapse(setting: Found) -> Found:
    """Holds where gold ends below its start; does not where it ends above it."""
    words = {"below": "holds", "above": "does not", "untold": "can't be told"}
    return {"verdict": words[told(setting["gold_change"])], "gold_change": setting["gold_change"]}


def _idle(found: Found, name: str) -> Found:
    """Not contradicted where KL can't be told from no KL's, but can from that of k1-reward of the same beta.

    Does not where KL can be told from no KL's.
    """
    to_none = found["to_none"][name]["kl_end"]
    to_k1 = found["to_k1_reward"].get(name, {}).get("kl_end")
    if told(to_none, 1.0) != "untold":
        word = "does not"
    else:
        is_apart = to_k1 is not None and told(to_k1, 1.0) == "above"
        word = "not contradicted" if is_apart else "can't be told"
    return {"verdict": word, "to_none": to_none, "to_k1_reward": to_k1}


# ---------------------------------------------------------------- the figures

COLOURS = {0.05: "#56b4e9", 0.15: "#e69f00", 0.5: "#7a3e9d"}
MARKS = {0.05: "o", 0.15: "s", 0.5: "D"}
GREY = "#606870"


def draw(runs: pd.DataFrame, steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """frontier.png: gold and proxy against KL along the run; ends.png: where the settings end."""
    data = Data.of(runs, steps)
    save_figure(out / "frontier.png", 10, 6.4, lambda figure: _frontier(figure, data))
    save_figure(out / "ends.png", 10, 4.6, lambda figure: _ends(figure, data, results))


def _frontier(figure: Any, data: Data) -> None:
    penalties = data.penalties()
    columns = min(3, len(penalties))
    axes = figure.subplots(
        math.ceil(len(penalties) / columns), columns, sharex=True, sharey=True, squeeze=False
    )
    ticks = [0.1, 0.3, 1, 3, 10, 30]
    for ax, penalty in zip(axes.flat, penalties, strict=False):
        _path(ax, data, NO_KL, GREY, None)
        for beta in BETAS:
            if arm(penalty, beta) in data.gold:
                _path(ax, data, arm(penalty, beta), COLOURS[beta], MARKS[beta])
        ax.set_title(f"{penalty}{' (biased)' if penalty in BIASED else ''}", fontsize=10)
        ax.set_xscale("log")
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.axhline(data.gold[NO_KL][:, 0].mean(), color=GREY, linewidth=0.7, linestyle=":")
        ax.set_axisbelow(True)
        ax.grid(visible=True, color="#e4e6e8", linewidth=0.5)
    figure.supxlabel("KL to the reference, nats/sequence (geometric mean over seeds)", fontsize=9)
    figure.supylabel(
        "score (gold: solid, with marks; proxy: dashed; gold before training: dotted)", fontsize=9
    )
    figure.legend(handles=_handles(), loc="outside upper center", ncols=5, fontsize=9)


def _path(ax: Any, data: Data, name: str, colour: str, mark: str | None) -> None:
    kl = np.exp(np.log(data.kl[name][:, 1:]).mean(axis=0))
    gold, proxy = (table[name][:, 1:].mean(axis=0) for table in (data.gold, data.proxy))
    ax.plot(kl, gold, color=colour, marker=mark, markersize=3.5, linewidth=1.4, zorder=3)
    ax.plot(kl, proxy, color=colour, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    one = at_once(data.gold[name][:, -1])
    around = [[one["mean"] - one["low"]], [one["high"] - one["mean"]]]
    ax.errorbar(kl[-1], one["mean"], yerr=around, color=colour, capsize=2.5, linewidth=1, zorder=1)


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=GREY, label="no KL")]
    lines += [
        Line2D(
            [], [], color=COLOURS[beta], marker=MARKS[beta], markersize=4, label=f"beta {beta:g}"
        )
        for beta in BETAS
    ]
    return [*lines, Line2D([], [], color="black", linestyle=(0, (4, 2)), label="proxy")]


def _ends(figure: Any, data: Data, results: Found) -> None:
    left, right = figure.subplots(1, 2)
    settings, names = results["settings"], [NO_KL, *data.penalties()]
    for place, penalty in enumerate(names):
        own = data.arms_of(penalty)
        for name, shift in zip(
            own, np.linspace(-0.22, 0.22, len(own)) if own[1:] else [0], strict=True
        ):
            one, x = settings[name], place + shift
            beta = None if name == NO_KL else float(name.rsplit(" ", 1)[1])
            colour = GREY if beta is None else COLOURS[beta]
            mark = "o" if beta is None else MARKS[beta]
            _bar(left, x, one["kl_end"], {"color": colour, "marker": mark})
            _bar(right, x, one["gold_end"], {"color": colour, "marker": mark})
            open_mark = {"color": colour, "marker": mark, "markerfacecolor": "white"}
            _bar(right, x + 0.09, one["gold_stopped"], open_mark)
    left.axhspan(*(settings[NO_KL]["kl_end"][key] for key in ("low", "high")), color="#eceef0")
    left.set_yscale("log")
    left.set_yticks([0.3, 1, 3, 10, 30, 100], ["0.3", "1", "3", "10", "30", "100"])
    left.minorticks_off()
    left.set_ylabel("KL at the end, nats/sequence")
    start = results["gold_start"]["mean"]
    right.axhline(start, color=GREY, linewidth=0.8, linestyle=":")
    right.text(0.3, start, "before training", va="bottom", fontsize=8, color=GREY)
    right.set_ylabel("gold (filled: at the end; open: when stopped)")
    for ax in (left, right):
        ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
        ax.set_xlim(-0.6, len(names) - 0.4)
    figure.legend(handles=_handles()[:-1], loc="outside upper center", ncols=4, fontsize=9)


def _bar(ax: Any, x: float, one: Found, style: dict[str, Any]) -> None:
    around = [[one["mean"] - one["low"]], [one["high"] - one["mean"]]]
    ax.errorbar(x, one["mean"], yerr=around, markersize=4.5, capsize=2, linewidth=1.1, **style)


# ---------------------------------------------------------------- the tables


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The README's tables by name."""
    return {
        "settings": _settings_table(results),
        "same-beta": _same_beta_table(results),
        "held": _held_table(results),
        "best-beta": _best_table(results),
        "matched-k1": _matched_table(results["matched"]["to_k1_reward"]),
        "matched-none": _matched_table(results["matched"]["to_none"]),
        "reached": _reached_table(results),
        "stability": _stability_table(results),
        "claims": _claims_table(results["claims"]),
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _words(found: Found | None, digits: int = 2) -> str:
    """With a star where a difference is told apart from 0."""
    return (
        ""
        if found is None
        else interval_words(found, digits) + ("*" if told(found) != "untold" else "")
    )


def _factor_words(found: Found | None) -> str:
    """With a star where a ratio is told apart from 1."""
    return (
        ""
        if found is None
        else interval_words(found) + ("*" if told(found, 1.0) != "untold" else "")
    )


def _settings_table(results: Found) -> str:
    head = [
        "setting",
        "KL at the end, nats/sequence",
        "KL, times that of no KL",
        "gold at the end",
        "less no KL",
        "gold when stopped",
        "less no KL",
        "stop at step",
        "proxy at the end",
    ]
    rows = []
    for name, one in results["settings"].items():
        other = results["to_none"].get(name, {})
        rows.append(
            [
                name,
                interval_words(one["kl_end"]),
                _factor_words(other.get("kl_end")),
                interval_words(one["gold_end"]),
                _words(other.get("gold_end")),
                interval_words(one["gold_stopped"]),
                _words(other.get("gold_stopped")),
                one["stop_step"],
                interval_words(one["proxy_end"]),
            ]
        )
    return _table(head, rows)


def _same_beta_table(results: Found) -> str:
    head = [
        "setting, against k1-reward of its beta",
        "gold at the end",
        "gold when stopped",
        "KL at the end, times",
    ]
    rows = [
        [name, _words(one["gold_end"]), _words(one["gold_stopped"]), _factor_words(one["kl_end"])]
        for name, one in results["to_k1_reward"].items()
    ]
    return _table(head, rows)


def _held_table(results: Found) -> str:
    head = [
        "penalty, beta .15 and .5 together",
        "KL at the end, times that of no KL",
        "KL along the run, times that of no KL",
        "KL at the end, times that of k1-reward",
        "KL at the end under beta .5, times that under .15",
    ]
    rows = []
    for p, end in results["pooled_kl"]["end"].items():
        run, response = results["pooled_kl"]["run"][p], results["beta_response"].get(p)
        found = (end["to_none"], run["to_none"], end.get("to_k1_reward"), response)
        rows.append([p, *(_factor_words(one) for one in found)])
    return _table(head, rows)


def _best_table(results: Found) -> str:
    head = [
        "penalty, at its best beta",
        "gold at the end",
        "less k1-reward",
        "gold when stopped",
        "less k1-reward",
    ]
    rows = []
    for name, one in results["best_beta"].items():
        cells = [
            [interval_words(own["gold"]), _words(own.get("to_k1_reward"))] for own in one.values()
        ]
        rows.append([name, *cells[0], *cells[1]])
    return _table(head, rows)


def _matched_table(found: Found) -> str:
    if not found:
        return ""
    head = ["KL, nats/sequence", "penalty", "seeds (pairs of runs)", "gold", "proxy"]
    rows = [
        [
            level,
            p,
            f"{one['seeds']} ({one['pairs']})",
            *(_words(one.get(c)) or "too few" for c in ("gold", "proxy")),
        ]
        for level, own in found["levels"].items()
        for p, one in own.items()
    ]
    return _table(head, rows)


def _reached_table(results: Found) -> str:
    head = ["setting: seeds that reached it, mean step", *(f"{level:g} nats" for level in LEVELS)]
    head.append("gold at the end less gold when the run first had its last KL")
    rows = [
        [
            name,
            *(f"{at['seeds']}, {at['step']:.0f}" if at["seeds"] else "0" for at in own.values()),
            _words(results["later"][name]),
        ]
        for name, own in results["reached"].items()
    ]
    return _table(head, rows)


def _stability_table(results: Found) -> str:
    head = [
        "setting",
        "sd of gold at the end over seeds",
        "sd, times that of no KL",
        "worst seed",
        "seeds that end below their start",
        "largest KL at an evaluation",
        "tokens at the end",
        "entropy at the end, nats/token",
    ]
    rows = []
    for name, one in results["settings"].items():
        texts = results["texts"][name]
        rows.append(
            [
                name,
                interval_words(one["sd"]),
                _factor_words(results["to_none"].get(name, {}).get("sd")),
                f"{one['worst']:.2f}",
                f"{one['seeds_below_start']} of {results['seeds']}",
                f"{one['kl_largest']:.1f}",
                interval_words(texts["tokens"], 1),
                interval_words(texts["entropy_token"]),
            ]
        )
    return _table(head, rows)


def _claims_table(claims: Found) -> str:
    head = ["published", "here", "by"]
    rows = []
    for how, one in claims.get("k1-reward is best", {}).items():
        apart = [f"{p} {word}" for p, word in one["where"].items() if word != "untold"]
        by = f"told apart from k1-reward: {', '.join(apart) or 'none'}; half widths {one['smallest_half']:.2f} to {one['largest_half']:.2f}"
        words = {"end": "at the end", "stopped": "when stopped"}[how]
        rows.append([f"k1-reward is best ({words})", one["verdict"], by])
    for name, one in claims["k3-reward collapses"].items():
        by = f"gold at the end less its start {interval_words(one['gold_change'])}"
        rows.append([f"k3-reward collapses ({name})", one["verdict"], by])
    for name, one in claims["k1-loss does nothing"].items():
        by = f"KL {interval_words(one['to_none'])} times that of no KL, {interval_words(one['to_k1_reward'])} times that of k1-reward"
        rows.append([f"k1-loss does nothing ({name})", one["verdict"], by])
    return _table(head, rows)


STUDY = Study(Path(__file__).parent, blocks, analyse, draw, tables, keeps_steps=True)

if __name__ == "__main__":
    main(STUDY)
