"""Published recipes and rules of thumb, converted to one unit and run side by side with equal budget.

python studies/2026-11-30-recipes/study.py    about 15 minutes on two cores; flags: studies/experiment.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from experiment import Block, Study, curves, interval_words, main, save_figure

from kltune.statistics.arms import MeanInterval, against, at_end, mean_of, stop_place, when_stopped

SEEDS = range(100, 108)
"""Fixed before the first run; none was used to make the task."""
K1 = "k1-reward"
STEERED = {
    "search.controller": {"choice": ["fixed", "proportional"]},
    "search.target_kl": {"log": [0.02, 0.5], "when": {"controller": "proportional"}},
    "search.horizon": {"log": [64, 6400], "when": {"controller": "proportional"}},
}
"""What the spec must search before it may say how a controller acts; arms are not drawn from it."""


def proportional(beta: float, target: float, horizon: float) -> dict[str, object]:
    """Ziegler's controller, target in nats/token, horizon in sequences (64 a step)."""
    return {
        "beta": beta,
        "penalty": K1,
        "controller": "proportional",
        "target_kl": target,
        "horizon": horizon,
    }


def threshold(rule: str, beta: float, target: float) -> dict[str, object]:
    """A threshold rule by its name, target in nats/token."""
    return {"beta": beta, "penalty": K1, "controller": f"threshold-{rule}", "target_kl": target}


NO_KL = "no KL"
TUNED = "k1-reward 0.15"
ARMS: dict[str, str | dict[str, object]] = {
    NO_KL: {"beta": 0.0},
    TUNED: {"beta": 0.15, "penalty": K1},
    # Recipes: beta, estimator, placement and controller as published, in kltune's unit.
    "trl-ppo-0.11": "trl-ppo-0.11",
    "comedy-high": "comedy-high",
    "stiennon": "stiennon",
    "instructgpt": "instructgpt",
    "verl-ppo": "verl-ppo",
    "trl-grpo-0.18": "trl-grpo-0.18",
    "tulu3-grpo": "tulu3-grpo",
    "deepseek-r1": "deepseek-r1",
    # Rules of thumb, by their numbers.
    "target 7, read per token": threshold("1.2x0.8", 0.05, 7.0),
    "target 7, read per sequence": threshold("1.2x0.8", 0.05, 7.0 / 13.18),
    "target 0.2, x1.5": threshold("1.5x", 0.1, 0.2),
    "conservative: 0.03, h 5000": proportional(0.002, 0.03, 5000),
    "conservative, gain 0.5": proportional(0.002, 0.03, 128),
}
"""13.18 tokens is the mean completion of the reference (machine.json)."""
PUBLISHED = {
    NO_KL: "DAPO, Dr. GRPO, OLMo 3",
    TUNED: "not published: within the range that held in studies/2026-11-29-kitchen",
    "trl-ppo-0.11": "0.2, adaptive to 6 nats/sequence, horizon 10,000",
    "comedy-high": "0.1 in the reward",
    "stiennon": "0.05 in the reward; RLOO, Tulu 3 PPO",
    "instructgpt": "0.02 in the reward",
    "verl-ppo": "0.001 in the reward; Bai et al. 2022",
    "trl-grpo-0.18": "0.04 in the loss, k3; DeepSeekMath",
    "tulu3-grpo": "0.01 in the loss, k3",
    "deepseek-r1": "0.001 in the loss, k3",
    "target 7, read per token": "KL 5 to 10 'per token'; x1.2 / x0.8 beyond +-20 %",
    "target 7, read per sequence": "the same as what it was, nats/sequence",
    "target 0.2, x1.5": "0.1 to 0.5 nats/token; x1.5 / :1.5 every 10 steps",
    "target 0.03, x1.2 every 50": "0.01 to 0.05 nats/token; x1.2 / :1.2 every 50 steps on an EMA",
    "conservative: 0.03, h 5000": "0.002 adaptive to 0.03 nats/token, horizon 5,000",
    "aggressive: 0.1, h 20000": "0.0005 adaptive to 0.1 nats/token, horizon 20,000; run late",
    "conservative, gain 0.5": "the same with a horizon that can act, 128",
    "warm-up 0.005 to 0.02": "0.005 for a tenth of the run, then 0.02",
    "target = warm-up median": "KL of the first tenth becomes the target, horizon 640",
    "target 0.1, 0.05, 0.03": "three-phase target, nats/token, horizon 128",
}
"""The README's rows, in this order."""
EMA = {"target 0.03, x1.2 every 50": threshold("1.2x", 0.02, 0.03)}
WARM_UP = {"warm-up 0.005 to 0.02": {"beta": 0.02, "penalty": K1, "controller": "schedule"}}
MEASURED = {
    "target = warm-up median": {
        "beta": 0.02,
        "penalty": K1,
        "controller": "proportional",
        "horizon": 640,
    }
}
LATE = {"aggressive: 0.1, h 20000": proportional(0.0005, 0.1, 20000)}
"""Run after the others had been looked at: left out of what holds all at once, compared alone."""
STAGED = {"target 0.1, 0.05, 0.03": proportional(0.02, 0.1, 128)}


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """Settings x seeds; a block for each section `control`."""
    if small:
        few = {name: ARMS[name] for name in (NO_KL, TUNED, "target 7, read per token")}
        size = {
            "model.base": "builtin:kitchen-small",
            "trainer.steps": 30,
            "evaluate": {"every": 10, "prompts": 16, "samples": 1},
        }
        return {"arms": Block(few, SEEDS[:2], size)}
    threshold_too = {
        "search.controller": {"choice": ["fixed", "threshold-1.2x"]},
        "search.target_kl": {"log": [0.02, 0.5], "when": {"controller": "threshold-1.2x"}},
    }
    scheduled = {"search.controller": {"choice": ["fixed", "schedule"]}}
    measured = {key: value for key, value in STEERED.items() if key != "search.target_kl"}
    return {
        "arms": Block(ARMS, SEEDS),
        "late": Block(LATE, SEEDS, STEERED),
        "ema": Block(EMA, SEEDS, {**threshold_too, "control.ema": 0.5}),
        "warm-up": Block(WARM_UP, SEEDS, {**scheduled, "control.schedule": [[0, 0.25], [0.1, 1]]}),
        "measured": Block(MEASURED, SEEDS, {**measured, "control.calibrate": {"share": 0.1}}),
        "staged": Block(
            STAGED, SEEDS, {**STEERED, "control.targets": [[0, 1], [0.33, 0.5], [0.67, 0.3]]}
        ),
    }


def analyse(runs: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
    """Gold and KL of every arm, what differs from no KL and from `TUNED`, and the verdicts by both rules."""
    all_runs, late = runs, runs["arm"].isin(LATE)
    runs, steps = runs[~late], steps[~steps["arm"].isin(LATE)]
    gold, kl = curves(runs, "gold"), curves(runs, "kl_seq")
    evaluated = [int(step) for step in sorted(runs["step"].unique())]
    beta = curves(steps, "beta")
    ends = {arm: at_end(values) for arm, values in gold.items()}
    stopped = {arm: when_stopped(values) for arm, values in gold.items()}
    # The mean of the last two evaluations, as of gold; on the log, since KL is a matter of factors.
    end_kl = {arm: np.log(values[:, -2:].mean(axis=1)) for arm, values in kl.items()}
    run_kl = {arm: _along(values) for arm, values in curves(steps, "kl_seq").items()}
    beside = {
        "end_minus_none": against(ends, NO_KL),
        "stopped_minus_none": against(stopped, NO_KL),
        "end_kl_times_none": against(end_kl, NO_KL),
        "kl_times_none": against(run_kl, NO_KL),
        "end_minus_tuned": against(ends, TUNED),
        "stopped_minus_tuned": against(stopped, TUNED),
    }
    found = {
        arm: {
            "seeds": len(ends[arm]),
            "gold_end": asdict(mean_of(ends[arm])),
            "gold_stopped": asdict(mean_of(stopped[arm])),
            "stop_step": evaluated[stop_place(gold[arm])],
            "kl_end": _factor(mean_of(end_kl[arm])),
            "beta_start": float(beta[arm][:, 0].mean()),
            "beta_end": float(np.median(beta[arm][:, -1])),
            "seeds_above_none": int((ends[arm] > ends[NO_KL]).sum()),
            "seeds_below_start": int((ends[arm] < gold[arm][:, 0]).sum()),
            **_beside({name: table[arm] for name, table in beside.items() if arm in table}),
        }
        for arm in gold
    }
    there = {name: [ends[arm] for arm in arms if arm in ends] for name, arms in GROUPS.items()}
    grouped = {name: np.mean(values, axis=0) for name, values in there.items() if values}
    groups = against({NO_KL: ends[NO_KL], **grouped}, NO_KL)
    steps_up = {f"{b} less {a}": grouped[b] - grouped[a] for a, b in combinations(grouped, 2)}
    pairs = {f"{a} less {b}": ends[a] - ends[b] for a, b in PAIRS if a in ends and b in ends}
    stopped_apart = [n for n, one in beside["stopped_minus_none"].items() if one.excludes_zero]
    return {
        "runs": int(all_runs.groupby(["block", "arm", "seed"]).ngroups),
        "late": _late(all_runs[late], ends),
        "arms": found,
        "groups": {name: asdict(one) for name, one in groups.items()},
        "group_by_group": {name: asdict(mean_of(v, len(steps_up))) for name, v in steps_up.items()},
        "pairs": {name: asdict(mean_of(values)) for name, values in pairs.items()},
        "first_rule": _counted(found, "first_rule", FIRST_RULE),
        "verdicts": _counted(found, "verdict", VERDICTS),
        "stopped_told_apart_from_none": stopped_apart,
        "half_widths": {name: _half_widths(table) for name, table in beside.items()},
        "start": asdict(mean_of(gold[NO_KL][:, 0])),
    }


def _late(runs: pd.DataFrame, ends: dict[str, np.ndarray]) -> dict[str, Any]:
    """What was run afterwards: gold and KL at the end, and the difference from `TUNED`, alone."""
    if runs.empty:
        return {}
    gold, kl = curves(runs, "gold"), curves(runs, "kl_seq")
    return {
        arm: {
            "gold_end": asdict(mean_of(at_end(values))),
            "kl_end": _factor(mean_of(np.log(kl[arm][:, -2:].mean(axis=1)))),
            "end_minus_tuned": asdict(mean_of(at_end(values) - ends[TUNED])),
            "end_minus_none": asdict(mean_of(at_end(values) - ends[NO_KL])),
        }
        for arm, values in gold.items()
    }


def _along(kl_SN: np.ndarray) -> np.ndarray:
    """Log of each seed's KL along the run: the geometric mean after step `BEFORE`."""
    return np.log(np.maximum(kl_SN[:, BEFORE:], 1e-3)).mean(axis=1)


BEFORE = 10
"""Steps in which no arm has moved far."""
GROUPS = {
    "0.002 and less": ("verl-ppo", "deepseek-r1", "conservative: 0.03, h 5000"),
    "0.005 to 0.05": (
        "trl-grpo-0.18",
        "tulu3-grpo",
        "instructgpt",
        "stiennon",
        "warm-up 0.005 to 0.02",
    ),
    "0.1 and more": ("comedy-high", TUNED, "trl-ppo-0.11", "target 0.2, x1.5"),
}
"""Fixed prices and controllers that hardly move, by raw reward per nat; one contrast each against no KL."""
PAIRS = (
    ("target 7, read per sequence", "target 7, read per token"),
    ("warm-up 0.005 to 0.02", "instructgpt"),
    ("target = warm-up median", "stiennon"),
    ("target 0.1, 0.05, 0.03", "stiennon"),
    ("conservative, gain 0.5", "conservative: 0.03, h 5000"),
)
"""Rules of thumb beside the fixed price of their size, or another reading; gold at the end, each interval alone."""
FIRST_RULE = ("holds", "harms", "slows", "inert")
"""Fixed before the first run, all against no KL: gold at the end above; gold below, at the end or when stopped; KL at
the end below; none of these."""
VERDICTS = {
    "lower KL": "KL along the run is below that of no KL, and gold at the end isn't told below that of k1-reward 0.15",
    "less gold": "gold at the end is below that of k1-reward 0.15",
    "not told": "neither can be told",
}
"""The second rule, made after the first had come out empty. "Is": told apart, 95 %, all arms at once."""


def _beside(one: dict[str, MeanInterval]) -> dict[str, Any]:
    """What is told of an arm beside others, with its verdicts; KL as factors."""
    words = {name: _factor(x) if "times" in name else asdict(x) for name, x in one.items()}
    if "kl_times_none" not in one:
        return words
    words["first_rule"] = _first_rule(one)
    is_below = "end_minus_tuned" in one and one["end_minus_tuned"].high < 0
    is_lower = one["kl_times_none"].high < 0
    return {**words, "verdict": "less gold" if is_below else "lower KL" if is_lower else "not told"}


def _first_rule(one: dict[str, MeanInterval]) -> str:
    if one["end_minus_none"].high < 0 or one["stopped_minus_none"].high < 0:
        return "harms"
    if one["end_minus_none"].low > 0:
        return "holds"
    return "slows" if one["end_kl_times_none"].high < 0 else "inert"


def _counted(found: dict[str, Any], rule: str, names: Iterable[str]) -> dict[str, Any]:
    by = {name: [arm for arm, one in found.items() if one.get(rule) == name] for name in names}
    return {name: {"count": len(arms), "arms": arms} for name, arms in by.items()}


def _half_widths(table: dict[str, MeanInterval]) -> dict[str, float]:
    halves = [(one.high - one.low) / 2 for one in table.values()]
    return {"narrowest": min(halves), "widest": max(halves)}


def _factor(log: MeanInterval) -> dict[str, float]:
    return {name: float(np.exp(getattr(log, name))) for name in ("mean", "low", "high")}


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The README's tables."""
    lines = [
        "| setting | as published | beta at the start → end | KL along the run, times no KL's | KL at the end | gold at the "
        "end | minus k1-reward 0.15 | gold when stopped (step) | seeds below their start | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for arm in results["arms"]:
        one = results["arms"][arm]
        moved = f"{one['beta_start']:.2g} → {one['beta_end']:.2g}"
        lines.append(
            f"| {arm} | {PUBLISHED[arm]} | {moved} | {_words(one, 'kl_times_none')} | {interval_words(one['kl_end'], 1)} | "
            f"{interval_words(one['gold_end'])} | {_words(one, 'end_minus_tuned')} | "
            f"{interval_words(one['gold_stopped'])} ({one['stop_step']}) | "
            f"{one['seeds_below_start']} of {one['seeds']} | {one.get('verdict', '-')} |"
        )
    groups = ["| beta at the start | gold at the end minus no KL |", "|---|---|"]
    groups += [f"| {name} | {interval_words(one)} |" for name, one in results["groups"].items()]
    return {"arms": "\n".join(lines), "groups": "\n".join(groups)}


def _words(one: dict[str, Any], name: str) -> str:
    return interval_words(one[name]) if name in one else "-"


def draw(_runs: pd.DataFrame, _steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """KL and gold of every arm, in one picture."""
    arms = [arm for arm in PUBLISHED if arm in results["arms"]]
    save_figure(
        out / "recipes.png",
        10.0,
        1.6 + 0.3 * len(arms),
        lambda figure: _draw(figure, arms, results["arms"]),
    )


COLOURS = {"lower KL": "#2166ac", "less gold": "#c96a1b", "not told": "#7a7a7a", "-": "black"}


def _draw(figure: Any, arms: list[str], found: dict[str, Any]) -> None:
    left, middle, right = figure.subplots(1, 3, sharey=True)
    for place, arm in enumerate(arms):
        one = found[arm]
        colour = COLOURS[one.get("verdict", "-")]
        if "kl_times_none" in one:
            _bar(left, one["kl_times_none"], place, colour, "o", colour)
        if "end_minus_tuned" in one:
            _bar(middle, one["end_minus_tuned"], place, colour, "o", colour)
        _bar(right, one["gold_end"], place + 0.14, colour, "o", colour)
        _bar(right, one["gold_stopped"], place - 0.14, colour, "D", "white")
    left.axvline(1.0, color="black", linewidth=0.5, linestyle=":")
    middle.axvline(0.0, color="black", linewidth=0.5, linestyle=":")
    left.set_yticks(range(len(arms)), arms)
    left.set_ylim(len(arms) - 0.5, -0.5)
    left.set_xscale("log")
    left.set_xticks([0.125, 0.25, 0.5, 1, 2], ["1/8", "1/4", "1/2", "1", "2"])
    left.minorticks_off()
    left.set_xlabel("KL along the run,\ntimes that of no KL")
    middle.set_xlabel("gold at the end,\nminus that of k1-reward 0.15")
    right.set_xlabel("gold: at the end (filled),\nwhen stopped (open)")
    for axes in (left, middle, right):
        axes.grid(axis="y", linewidth=0.3, alpha=0.5)
    _legend(figure, {one.get("verdict", "-") for one in found.values()})
    figure.suptitle(
        "Published settings in one unit, 8 seeds; 95 %, left and middle: all at once, right: each alone",
        fontsize=10,
    )


def _bar(
    axes: Any, one: dict[str, float], place: float, colour: str, marker: str, fill: str
) -> None:
    error = [[one["mean"] - one["low"]], [one["high"] - one["mean"]]]
    axes.errorbar(
        one["mean"],
        place,
        xerr=error,
        fmt=marker,
        color=colour,
        markerfacecolor=fill,
        markersize=5,
        capsize=2,
        elinewidth=1,
    )


def _legend(figure: Any, verdicts: set[str]) -> None:
    from matplotlib.lines import Line2D

    there = [name for name in VERDICTS if name in verdicts]
    handles = [
        Line2D(
            [], [], color=COLOURS[name], marker="o", linestyle="", label=f"{name}: {VERDICTS[name]}"
        )
        for name in there
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=1, fontsize=8)


STUDY = Study(Path(__file__).parent, blocks, analyse, draw, tables, keeps_steps=True)

if __name__ == "__main__":
    main(STUDY)
