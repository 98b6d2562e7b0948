"""What a sweep saves: gold of the setting that it recommends against random choice and known recipes, and the time it takes.

    python studies/2026-11-30-savings/study.py    about 35 minutes on two cores

Eight sweeps of sweeps/kitchen.yaml, each from a seed of its own; then what they recommend, random
settings of the same space and the recipes, on fresh seeds. ``sweeps.json`` holds what each sweep said, ``runs.csv`` the
fresh runs; further flags as in studies/experiment.py.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

from experiment import ROOT, Block, Study, curves, interval_words, main, save_figure

import kltune
from kltune.spec.load import load_spec
from kltune.statistics.arms import mean_of
from kltune.study.space import setting_of, sobol_params

SWEEP_SEEDS = range(200, 208)
"""Of the sweeps. Fixed before the first run, like all that follow."""
TRIALS = 16
"""Of a sweep. The file says 24: eight of those, and the fresh runs, would not fit into the hour that a study has."""
FRESH_SEEDS = range(400, 403)
"""Of the runs that judge; no sweep saw them."""
RANDOM_SEED, RANDOM = 999, 6
"""Scrambled Sobol points of the sweep's own space."""
RECIPES = ("trl-grpo-0.18", "verl-ppo", "instructgpt")
NO_KL = "no KL"
SPEC = ROOT / "sweeps" / "kitchen.yaml"
FOLDER = Path(__file__).parent


def sweep_all(small: bool, out: Path) -> None:
    """Run the sweeps, or what is missing of them, and note what each said."""
    seeds = SWEEP_SEEDS[:1] if small else SWEEP_SEEDS
    changes = (
        {**SMALL, "budget": {"trials": 5, "workers": 1, "slots": 1}}
        if small
        else {"budget.trials": TRIALS}
    )
    found = [
        said(kltune.sweep(SPEC, seed=seed, study=out / "sweeps" / str(seed), set=changes), seed)
        for seed in seeds
    ]
    (out / "sweeps.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def said(study: kltune.Study, seed: int) -> dict[str, Any]:
    """The recommendation of a sweep, what it cost, and its own trials as a single look would rank them."""
    best = study.best
    assert best is not None, f"the sweep of seed {seed} recommends nothing"
    assert best.peak is not None
    timing = json.loads((study.path / "timing.json").read_text(encoding="utf-8"))
    trials = study.trials
    return {
        "seed": seed,
        "trial": best.number,
        "origin": best.origin,
        "setting": best.setting.model_dump(mode="json", exclude={"seed"}),
        "stop_step": best.peak.step,
        "value": best.value,
        "wall_s": timing["wall_s"],
        "trials": len(trials),
        "steps": int(trials["steps"].sum()),
        "ended": trials["reason"].value_counts().to_dict(),
        "spared": {
            str(reason): int((study.spec.trainer.steps - rows["steps"]).sum())
            for reason, rows in trials.groupby("reason", observed=True)
        },
        "best_step_of": {
            str(row.origin): int(row.best_step)
            for row in trials.itertuples()
            if str(row.origin) in _fixed()
        },
    }


def _fixed() -> tuple[str, ...]:
    return ("zero", *(f"baseline:{name}" for name in RECIPES))


def blocks(small: bool, out: Path) -> dict[str, Block]:
    """Recommended, random and known settings on fresh seeds."""
    sweeps = json.loads((out / "sweeps.json").read_text(encoding="utf-8"))
    arms: dict[str, str | dict[str, object]] = {NO_KL: {"beta": 0.0}}
    arms |= {f"sweep {one['seed']}": one["setting"] for one in sweeps}
    arms |= random_settings(1 if small else RANDOM)
    arms |= {name: name for name in (RECIPES[:1] if small else RECIPES)}
    return {"fresh": Block(arms, FRESH_SEEDS[:2] if small else FRESH_SEEDS, SMALL if small else {})}


SMALL = {
    "model.base": "builtin:kitchen-small",
    "trainer.steps": 16,
    "evaluate": {"every": 8, "prompts": 16, "samples": 1},
}


def random_settings(num: int) -> dict[str, dict[str, object]]:
    """Points of the sweep's space that nothing has looked at."""
    spec = load_spec(SPEC).spec
    drawn = sobol_params(spec.search, num, RANDOM_SEED)
    skipped = {"seed", "learning_rate"}
    return {
        f"random {i}": setting_of(params, spec).model_dump(mode="json", exclude=skipped)
        for i, params in enumerate(drawn)
    }


GRID = FOLDER.parent / "2026-11-30-penalties" / "runs.csv"
"""Every penalty at every beta, 60 steps, without guards or pruning: what a full grid would have seen."""
GRID_PENALTIES = ("no KL", "k1-reward", "exact-full", "k2-loss", "k3-loss")


def analyse(
    runs: pd.DataFrame, _steps: pd.DataFrame, sweeps: list[dict[str, Any]]
) -> dict[str, Any]:
    """Gold of each way to choose on fresh seeds, what a sweep is ahead by, and where its time went."""
    gold = curves(runs, "gold")
    places = {int(step): c for c, step in enumerate(sorted(runs["step"].unique()))}
    swept = np.array([gold[f"sweep {one['seed']}"][:, places[one["stop_step"]]] for one in sweeps])
    random = [arm for arm in gold if arm.startswith("random")]
    known = [arm for arm in gold if arm != NO_KL and arm in RECIPES]
    ways = {
        "sweep": swept,
        "random, run to its end": np.array([gold[arm][:, -1] for arm in random]),
        "random, stopped": np.array([own_stop(gold[arm]) for arm in random]),
        "best of all random": best_of([gold[arm] for arm in random])[None],
        "recipe, run to its end": np.array([gold[arm][:, -1] for arm in known]),
        "recipe, stopped": np.array([own_stop(gold[arm]) for arm in known]),
        "no KL, run to its end": gold[NO_KL][None, :, -1],
        "no KL, stopped": own_stop(gold[NO_KL])[None],
    }
    steps = [one["steps"] for one in sweeps]
    full = [one["trials"] * (max(places) if one["trials"] else 0) for one in sweeps]
    values = np.array([one["value"] for one in sweeps])
    return {
        "sweeps": len(sweeps),
        "fresh_runs": int(runs.groupby(["arm", "seed"]).ngroups),
        "fresh_seeds": int(runs["seed"].nunique()),
        "ways": {name: {**crossed(found), "settings": len(found)} for name, found in ways.items()},
        "sweep_minus": {
            name: crossed(swept, found) for name, found in ways.items() if name != "sweep"
        },
        "said_by_sweep": _mean(values),
        "said_minus_fresh": _mean(values - swept.mean(axis=1)),
        "start": float(np.mean([one[:, 0].mean() for one in gold.values()])),
        "wall_s": _mean(np.array([one["wall_s"] for one in sweeps])),
        "steps": _mean(np.array(steps, dtype=float)),
        "full_steps": float(np.mean(full)),
        "steps_share": _mean(np.array(steps) / np.array(full)),
        "spared_share": _spared(sweeps, full),
        "penalties_recommended": _counts([str(one["setting"]["penalty"]) for one in sweeps]),
        "controllers_recommended": _counts([str(one["setting"]["controller"]) for one in sweeps]),
        "betas_recommended": [one["setting"]["beta"] for one in sweeps],
        "stops_recommended": [one["stop_step"] for one in sweeps],
        "per_sweep": {
            str(one["seed"]): {
                "said": one["value"],
                "fresh": float(mine.mean()),
                "lowest": float(mine.min()),
            }
            for one, mine in zip(sweeps, swept, strict=True)
        },
        **({"grid": grid()} if GRID.is_file() else {}),
    }


def own_stop(gold_SC: np.ndarray) -> np.ndarray:
    """Gold of each seed where *one other* run of the setting had its highest, meaned over those others."""
    stops = 1 + gold_SC[:, 1:].argmax(axis=1)
    return _judged_by_others(lambda s, other: gold_SC[s, stops[other]], len(gold_SC))


def best_of(arms_SC: list[np.ndarray]) -> np.ndarray:
    """Gold of each seed under the setting and stop that *one other* seed's runs had their highest gold with."""
    gold_KSC = np.array(arms_SC)
    num = gold_KSC.shape[1]
    picks = [
        np.unravel_index(gold_KSC[:, s, 1:].argmax(), gold_KSC[:, s, 1:].shape) for s in range(num)
    ]
    return _judged_by_others(
        lambda s, other: gold_KSC[picks[other][0], s, 1 + picks[other][1]], num
    )


def _judged_by_others(gold: Callable[[int, int], float], num: int) -> np.ndarray:
    seeds = range(num)
    return np.array([np.mean([gold(s, other) for other in seeds if other != s]) for s in seeds])


def crossed(a_US: np.ndarray, b_VS: np.ndarray | None = None) -> dict[str, float]:
    """A mean over settings and seeds, or a difference of two, with its 95 % interval.

    Settings (U of one, V of the other) and seeds (S, the same of both) are both samples of what could
    have been drawn: the variances of their means are added, with Satterthwaite's degrees of freedom. What a
    setting does on a seed counts in both, so the interval is wide rather than narrow. One setting alone has no spread.
    """
    by_seed_S = a_US.mean(axis=0) - (0.0 if b_VS is None else b_VS.mean(axis=0))
    samples = [by_seed_S, a_US.mean(axis=1), *([] if b_VS is None else [b_VS.mean(axis=1)])]
    parts = [(float(x.var(ddof=1)) / len(x), len(x) - 1) for x in samples if len(x) > 1]
    variance = sum(part for part, _ in parts)
    mean = float(by_seed_S.mean())
    if variance == 0:
        return {"mean": mean, "low": mean, "high": mean}
    df = variance**2 / sum(part**2 / one for part, one in parts)
    half = float(stats.t.ppf(0.975, df)) * math.sqrt(variance)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def grid() -> dict[str, Any]:
    """The best run of a full grid of one seed, judged on the other seeds of the study of penalties."""
    runs = pd.read_csv(GRID)
    arms = [arm for arm in runs["arm"].unique() if arm.split(" 0.")[0] in GRID_PENALTIES]
    gold = curves(runs, "gold")
    judged = best_of([gold[arm] for arm in arms])
    return {"settings": len(arms), "steps": len(arms) * int(runs["step"].max()), **_mean(judged)}


def _mean(values: np.ndarray) -> dict[str, Any]:
    return asdict(mean_of(values)) if len(values) > 1 else {"mean": float(values[0])}


def _counts(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in dict.fromkeys(words)}


def _spared(sweeps: list[dict[str, Any]], full: list[int]) -> dict[str, float]:
    """Share of all steps of full trials that were not run, by why the trial ended."""
    reasons = dict.fromkeys(reason for one in sweeps for reason in one["spared"])
    return {
        reason: sum(one["spared"].get(reason, 0) for one in sweeps) / sum(full)
        for reason in reasons
    }


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The README's tables."""
    lines = [
        "| how the setting is chosen | settings | gold on fresh seeds | the sweep's is above by |",
        "|---|---|---|---|",
    ]
    for name, one in results["ways"].items():
        ahead = "-" if name == "sweep" else interval_words(results["sweep_minus"][name])
        lines.append(f"| {name} | {one['settings']} | {interval_words(one)} | {ahead} |")
    sweeps = ["| sweep of seed | it said | on fresh seeds | lowest seed |", "|---|---|---|---|"]
    for seed, one in results["per_sweep"].items():
        sweeps.append(f"| {seed} | {one['said']:.2f} | {one['fresh']:.2f} | {one['lowest']:.2f} |")
    return {"ways": "\n".join(lines), "sweeps": "\n".join(sweeps)}


def draw(_runs: pd.DataFrame, _steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """Gold by the way of choosing, and how the sweep's lies above each."""
    save_figure(out / "savings.png", 9.0, 3.6, lambda figure: _draw(figure, results))


def _draw(figure: Any, results: dict[str, Any]) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    names = list(results["ways"])
    for place, name in enumerate(names):
        _bar(
            left,
            results["ways"][name],
            place,
            "#1b5e8c" if name == "sweep" else "#c96a1b",
            is_filled=True,
        )
        if name != "sweep":
            one = results["sweep_minus"][name]
            _bar(right, one, place, "#1b5e8c", is_filled=one["low"] > 0 or one["high"] < 0)
    left.axvline(results["start"], color="black", linewidth=0.5, linestyle=":")
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.5, -0.5)
    left.set_xlim(-1.5, 1.5)
    right.set_xlim(-1.5, 2.5)
    left.set_xlabel("gold on fresh seeds (dotted: untrained)")
    right.axvline(0.0, color="black", linewidth=0.6)
    right.set_xlabel("the sweep's minus this; filled: told apart")
    for axes in (left, right):
        axes.grid(axis="y", linewidth=0.3, alpha=0.5)


def _bar(axes: Any, one: dict[str, float], place: float, colour: str, *, is_filled: bool) -> None:
    axes.errorbar(
        one["mean"],
        place,
        xerr=[[one["mean"] - one["low"]], [one["high"] - one["mean"]]],
        fmt="o",
        color=colour,
        markerfacecolor=colour if is_filled else "white",
        markersize=5,
        capsize=2,
        elinewidth=1,
    )


STUDY = Study(
    FOLDER, blocks, analyse, draw, tables, prepare=sweep_all, more=("sweeps.json",), spec=str(SPEC)
)

if __name__ == "__main__":
    main(STUDY)
