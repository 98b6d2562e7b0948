"""Is short and small enough? The same betas on three model sizes and with all weights trained, judged early and late.

python studies/2026-11-30-short-small/study.py    about 25 minutes on two cores; flags: studies/experiment.py
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from experiment import Block, Study, curves, interval_words, main, save_figure

from kltune.statistics.arms import (
    against,
    at_end,
    mean_of,
    rank_agreement,
    stop_place,
    when_stopped,
)

Floats = NDArray[np.float64]
Curves = Mapping[str, Floats]
"""Gold (or KL) by arm, S seeds x C evaluations, the first the start."""

FOLDER = Path(__file__).parent
SEEDS = range(100, 108)
"""Fixed before the first run; none was used to make the task."""
FULL_RATE = 5e-4
"""Step size with all weights trained. Of 1e-4, 3e-4 and 1e-3 (seed 50, no KL) the first moves too little (KL .8 at step
60), the last breaks the model (46); between them lies what moves like the adapters."""
BETAS = (0.0, 0.05, 0.15, 0.5, 5.0)
"""Raw reward per nat of sequence KL, in the reward (k1)."""


def arm(beta: float) -> str:
    """The name of a setting."""
    return f"k1-reward {beta:g}" if beta else "no KL"


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """Settings x seeds; a block for each model."""
    betas = (0.15, 5.0) if small else BETAS
    arms = {
        arm(beta): {"beta": beta, "penalty": "k1-reward"} if beta else {"beta": 0.0}
        for beta in betas
    }
    tiny = {"model.base": "builtin:kitchen-small", "trainer.learning_rate": 1.5e-3}
    if small:  # at the step size of the others, so that 16 steps are enough
        tiny = {"model.base": "builtin:kitchen-small"}
        less = {"trainer.steps": 16, "evaluate": {"every": 4, "prompts": 16, "samples": 1}}
        return {
            "small": Block(arms, SEEDS[:2], {**tiny, **less}),
            "medium": Block(arms, SEEDS[:2], less),
        }
    return {
        "small": Block(arms, SEEDS, tiny),
        "medium": Block(arms, SEEDS),
        "full": Block(arms, SEEDS, {"model.finetune": "full", "trainer.learning_rate": FULL_RATE}),
        "large": Block(arms, SEEDS, {"model.base": "builtin:kitchen-large"}),
    }


NO_KL = arm(0.0)
SHARES = (0.25, 0.5, 1.0)
"""Of the steps, at which the betas are judged."""
TARGET = "large"
"""The model that the decision is for."""
MEASURES: dict[str, Callable[[Floats], Floats]] = {"stopped": when_stopped, "at_end": at_end}
"""Value of each seed's run so far: at the evaluation where the other seeds' gold is highest, and at the last step."""
SINGLE: dict[str, Callable[[Floats], Floats]] = {
    "stopped": lambda gold_SC: gold_SC[:, 1:].max(axis=1),
    "at_end": at_end,
}
"""The same of a run that is alone: its highest gold, of its own noise too."""
MEASURE_WORDS = {"stopped": "stopped at the peak", "at_end": "at the last step"}
MODELS = {"small": "small", "medium": "medium", "full": "medium, all weights", "large": "large"}
"""By block, as they are called in texts."""


def analyse(
    runs: pd.DataFrame,
    _steps: pd.DataFrame,
    machine: Mapping[str, Any],
    step_s: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """What the betas are worth, and how far an early or a small look foretells it; intervals over seeds.

    ``step_s``: seconds of a trial-step by model on an idle machine; None: as the runs themselves took.
    """
    models = [name for name in MODELS if name in set(runs["block"])]
    gold = {name: curves(runs, "gold", name) for name in models}
    kl = {name: curves(runs, "kl_seq", name) for name in models}
    steps = sorted(runs["step"].unique())
    seconds = {name: _seconds(machine["blocks"][name]) for name in models}
    if step_s is not None:
        seconds = {name: step_s[name] * steps[-1] for name in models}
    target = TARGET if TARGET in models else models[-1]
    return {
        "runs": len(runs.groupby(["block", "arm", "seed"])),
        "ends": _ends(machine, models),
        "steps": int(steps[-1]),
        "target": target,
        "seconds_per_run": seconds,
        "machine_minutes": sum(machine["blocks"][name]["wall_s"] for name in models) / 60,
        "models": {name: _model(gold[name], kl[name], steps) for name in models},
        "early": {name: _decisions(gold[name], gold[name], steps, 1.0) for name in models},
        "small": {
            name: _decisions(gold[name], gold[target], steps, seconds[name] / seconds[target])
            for name in models
            if name != target
        },
        "lora_for_full": (
            _decisions(gold["medium"], gold["full"], steps, seconds["medium"] / seconds["full"])
            if {"medium", "full"} <= set(models)
            else {}
        ),
    }


def keep_step_s(small: bool, out: Path) -> None:
    """timing.json of a scaled-down run; that of the study was measured apart, on an idle machine."""
    if small:
        blocks = read_machine(out)["blocks"]
        text = json.dumps({name: _seconds(block) for name, block in blocks.items()})
        (out / "timing.json").write_text(text, encoding="utf-8")
    elif out != FOLDER:
        shutil.copy(FOLDER / "timing.json", out)


def read_machine(out: Path) -> dict[str, Any]:
    """machine.json."""
    found: dict[str, Any] = json.loads((out / "machine.json").read_text(encoding="utf-8"))
    return found


def _seconds(block: Mapping[str, Any]) -> float:
    """Of the machine, for one run."""
    return float(block["wall_s"]) / (len(block["arms"]) * len(block["seeds"]))


def _ends(machine: Mapping[str, Any], models: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in models:
        for reason, count in machine["blocks"][name]["ends"].items():
            found[reason] = found.get(reason, 0) + count
    return found


def _cut(gold: Curves, steps: Sequence[int], share: float) -> dict[str, Floats]:
    """The evaluations up to this share of the steps."""
    num = sum(step <= share * steps[-1] for step in steps)
    return {name: values[:, :num] for name, values in gold.items()}


def _values(gold: Curves, measure: str) -> dict[str, Floats]:
    return {name: MEASURES[measure](values) for name, values in gold.items()}


# -- one model -----------------------------------------------------------------------------------------------


def _model(gold: Curves, kl: Curves, steps: Sequence[int]) -> dict[str, Any]:
    arms = {
        name: {
            "stopped": asdict(mean_of(when_stopped(values))),
            "at_end": asdict(mean_of(at_end(values))),
            "stop_step": int(steps[stop_place(values)]),
            "kl_stop": _middle(kl[name][:, stop_place(values)])["mean"],
            "kl_end": _middle(at_end(kl[name])),
        }
        for name, values in gold.items()
    }
    start = np.mean([values[:, 0] for values in gold.values()], axis=0)
    return {
        "start": asdict(mean_of(start)),
        "arms": arms,
        **{measure: _told(_values(gold, measure)) for measure in MEASURES},
    }


def _middle(kl_S: Floats) -> dict[str, Any]:
    """Geometric mean over seeds with its interval, since a run or two may go ten times as far as the others."""
    found = asdict(mean_of(np.log(kl_S)))
    return {k: math.exp(v) if k in ("mean", "low", "high") else v for k, v in found.items()}


def _told(values: Mapping[str, Floats]) -> dict[str, Any]:
    """What can be told apart: each setting against no KL (all at once), and pairs (all at once, a little wide)."""
    pairs = list(combinations(values, 2))
    off = {(a, b): mean_of(values[b] - values[a], len(pairs)) for a, b in pairs}
    apart = [f"{a} / {b}" for (a, b), one in off.items() if one.excludes_zero]
    best = max(values, key=lambda name: float(values[name].mean()))
    equal = [
        name
        for name in values
        if name != best and not any({a, b} == {name, best} for a, b in _apart(off))
    ]
    return {
        "against_no_kl": (
            {name: asdict(one) for name, one in against(values, NO_KL).items()}
            if NO_KL in values
            else {}
        ),
        "pairs": len(pairs),
        "apart": apart,
        "num_apart": len(apart),
        "best": best,
        "not_told_from_best": equal,
        "half_width": float(np.median([(one.high - one.low) / 2 for one in off.values()])),
    }


def _apart(off: Mapping[tuple[str, str], Any]) -> list[tuple[str, str]]:
    return [pair for pair, one in off.items() if one.excludes_zero]


# -- decisions -----------------------------------------------------------------------------------------------


def _decisions(
    looked: Curves, final: Curves, steps: Sequence[int], cost: float
) -> dict[str, dict[str, Any]]:
    """By share and measure: what choosing by a look at ``looked`` means for whole runs of ``final``.

    ``cost``: of a whole run of the one, in whole runs of the other.
    """
    found: dict[str, dict[str, Any]] = {}
    is_same = looked is final
    looked, final = _shared_seeds(looked, final)
    for share, measure in product(SHARES, MEASURES):
        names = list(final)
        seen = _cut(looked, steps, share)
        early = _values(seen, measure)
        late = _values(final, measure)
        early_KS, late_KS = (np.array([v[name] for name in names]) for v in (early, late))
        single_KS = np.array([SINGLE[measure](seen[name]) for name in names])
        told = _decision(early_KS, late_KS, names, single_KS)
        if is_same and share == 1.0:  # nothing is foretold; what is left is the noise of the seeds
            told = {k: v for k, v in told.items() if k not in ("rank", "regret")}
        found.setdefault(f"{share:g}", {"cost": cost * share})[measure] = told
    return found


def _shared_seeds(one: Curves, other: Curves) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """The seeds that both have: those of the largest model are the first of the others'."""
    num = min(len(values) for values in (*one.values(), *other.values()))
    return {k: v[:num] for k, v in one.items()}, {k: v[:num] for k, v in other.items()}


def _decision(
    early_KS: Floats, late_KS: Floats, names: Sequence[str], single_KS: Floats
) -> dict[str, Any]:
    """``single_KS``: what each run would be judged by if it were the only one of its setting."""
    chosen = int(np.argmax(early_KS.mean(axis=1)))
    best = int(np.argmax(late_KS.mean(axis=1)))
    told: dict[str, Any] = {
        "chosen": names[chosen],
        "best": names[best],
        "one_seed": asdict(mean_of(_one_seed_losses(single_KS, late_KS))),
        "chosen_how_often": _how_often(early_KS, names),
        # What choosing at random loses: the scale for the regrets.
        "at_random": asdict(mean_of(_random_losses(late_KS))),
    }
    if len(names) > 2:
        agreed = rank_agreement(early_KS, late_KS)
        told["rank"] = {"mean": agreed.correlation, "low": agreed.low, "high": agreed.high}
        told["regret"] = {
            "mean": agreed.regret,
            "low": agreed.regret_low,
            "high": agreed.regret_high,
        }
        told["rank_other_seeds"] = _other_seeds(early_KS, late_KS)
    return told


def _one_seed_losses(single_KS: Floats, late_KS: Floats) -> Floats:
    """Loss on each seed, against the best by the others, of choosing by one other seed alone; mean over which."""
    seeds = range(late_KS.shape[1])
    found: list[float] = []
    for t in seeds:
        others = [s for s in seeds if s != t]
        chosen = [int(np.argmax(single_KS[:, s])) for s in others]
        best = _best(late_KS, others)
        found.append(float(late_KS[best, t] - np.mean([late_KS[k, t] for k in chosen])))
    return np.array(found)


def _best(values_KS: Floats, seeds: Sequence[int]) -> int:
    return int(np.argmax(values_KS[:, list(seeds)].mean(axis=1)))


def _random_losses(late_KS: Floats) -> Floats:
    """Of each seed: the best by the other seeds less the mean setting."""
    num = late_KS.shape[1]
    best_S = [_best(late_KS, [t for t in range(num) if t != s]) for s in range(num)]
    return np.array([late_KS[best_S[s], s] - late_KS[:, s].mean() for s in range(num)])


def _how_often(early_KS: Floats, names: Sequence[str], draws: int = 2000) -> dict[str, float]:
    """Share of bootstrap draws of the seeds in which each setting is the one chosen."""
    rng = np.random.default_rng(0)
    num = early_KS.shape[1]
    chosen = [_best(early_KS, rng.integers(num, size=num).tolist()) for _ in range(draws)]
    return {name: chosen.count(k) / draws for k, name in enumerate(names) if k in chosen}


def _other_seeds(early_KS: Floats, late_KS: Floats, splits: int = 200) -> float:
    """Spearman's correlation where half of the seeds are looked at early and the other half late, over splits."""
    rng = np.random.default_rng(0)
    num = early_KS.shape[1]
    found: list[float] = []
    for _ in range(splits):
        order = rng.permutation(num)
        a, b = order[: num // 2], order[num // 2 :]
        ranks = [
            values[:, part].mean(axis=1).argsort().argsort()
            for values, part in ((early_KS, a), (late_KS, b))
        ]
        found.append(float(np.corrcoef(*ranks)[0, 1]))
    return float(np.mean(found))


# -- figures -------------------------------------------------------------------------------------------------

COLOURS = ("#000000", "#440154", "#31688e", "#35b779", "#c2a000", "#c2410c")
"""From no KL to the largest beta."""
MODEL_STYLE = {
    "small": ("#c2a000", "s"),
    "medium": ("#31688e", "o"),
    "full": ("#c2410c", "^"),
    "large": ("#440154", "D"),
}

APART = {"small": 1.0, "medium": 0.96, "full": 1.04, "large": 1.0}
"""Of places on the cost axis, so that looks of one cost can be seen beside each other."""


def draw(runs: pd.DataFrame, _steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """gold.png: gold by step for each model; regret.png: what an early or small decision loses, by its cost."""
    models = list(results["models"])
    save_figure(out / "gold.png", 9, 5.6, lambda f: _draw_gold(f, runs, models))
    if any("regret" in told for _, told in _looks(results, "stopped")):
        save_figure(out / "regret.png", 9, 4.0, lambda f: _draw_regret(f, results))


def _draw_gold(figure: Any, runs: pd.DataFrame, models: Sequence[str]) -> None:
    panels = figure.subplots(2, -(-len(models) // 2), sharex=True, sharey=True, squeeze=False)
    steps = sorted(runs["step"].unique())
    for panel, model in zip(panels.flat, models, strict=False):
        gold, kl = curves(runs, "gold", model), curves(runs, "kl_seq", model)
        for colour, (name, values) in zip(COLOURS, gold.items(), strict=False):
            mean = values.mean(axis=0)
            half = np.array([mean_of(column).high for column in values.T]) - mean
            label = name.replace("k1-reward", "beta")
            panel.plot(steps, mean, color=colour, lw=1.4, marker="o", ms=2.5, label=label)
            panel.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.1, lw=0)
        ends = ", ".join(f"{_middle(at_end(values))['mean']:.2g}" for values in kl.values())
        panel.set_title(f"{MODELS[model]}; KL at the end {ends}", fontsize=8)
        for share in SHARES[:-1]:
            panel.axvline(share * steps[-1], color="#bbbbbb", lw=0.7, ls="--", zorder=0)
        panel.axhline(0, color="#dddddd", lw=0.6, zorder=0)
    for panel in panels[-1]:
        panel.set_xlabel("training step (dashed: 25 and 50 %)")
    for row in panels:
        row[0].set_ylabel("gold, select prompts")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=6)


def _looks(results: Mapping[str, Any], measure: str) -> list[tuple[tuple[str, str, float], Any]]:
    """((model, share, cost), decision) of every look that decides for the target."""
    target = results["target"]
    found: list[tuple[tuple[str, str, float], Any]] = []
    for model, shares in {**results["small"], target: results["early"][target]}.items():
        for share, told in shares.items():
            found.append(((model, share, told["cost"]), told[measure]))
    return found


def _draw_regret(figure: Any, results: Mapping[str, Any]) -> None:
    panels = figure.subplots(1, 2)
    for panel, measure in zip(panels, MEASURES, strict=True):
        looks = _looks(results, measure)
        for (model, share, cost), told in looks:
            if "regret" not in told:
                continue
            colour, marker = MODEL_STYLE[model]
            mean, low, high = (told["regret"][k] for k in ("mean", "low", "high"))
            place = cost * APART[model]
            panel.errorbar(
                place, mean, [[mean - low], [high - mean]], color=colour, marker=marker, ms=5, lw=1
            )
            note = f"{float(share):.0%}"
            panel.annotate(
                note,
                (place, high),
                (0, 2),
                textcoords="offset points",
                fontsize=6.5,
                ha="center",
                color=colour,
            )
        random = looks[0][1]["at_random"]["mean"]
        panel.axhline(random, color="#888888", lw=0.8, ls=":")
        panel.annotate(
            "a setting at random",
            (1.3, random),
            (0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=7,
            color="#555555",
        )
        panel.axhline(0, color="#cccccc", lw=0.6, zorder=0)
        panel.set_xscale("log", base=2)
        ticks = [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1]
        panel.set_xticks(ticks, ["1/16", "1/8", "1/4", "1/2", "1"])
        panel.set_xlabel(
            f"cost of the look, in whole runs of the {MODELS[results['target']]} model"
        )
        panel.set_title(f"judged {MEASURE_WORDS[measure]}", fontsize=9)
    panels[0].set_ylabel(f"gold lost on the {MODELS[results['target']]} model")
    for model in dict.fromkeys(model for (model, _, _), _ in _looks(results, "stopped")):
        colour, marker = MODEL_STYLE[model]
        panels[0].plot([], [], color=colour, marker=marker, ls="", label=MODELS[model])
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)


# -- tables --------------------------------------------------------------------------------------------------


def tables(results: dict[str, Any]) -> dict[str, str]:
    """For README.md."""
    return {
        "arms-stopped": _arms_table(results, "stopped"),
        "arms-at-end": _arms_table(results, "at_end"),
        "kl": _kl_table(results),
        "told": _told_table(results),
        "early": _early_table(results),
        "small": _small_table(results),
    }


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _arms_table(results: Mapping[str, Any], measure: str) -> str:
    arms = list(next(iter(results["models"].values()))["arms"])
    rows: list[list[str]] = []
    for model, told in results["models"].items():
        cells = [interval_words(told["arms"][name][measure]) for name in arms]
        rows.append([MODELS[model], interval_words(told["start"]), *cells])
    return _markdown(["model", "start", *arms], rows)


def _kl_table(results: Mapping[str, Any]) -> str:
    arms = list(next(iter(results["models"].values()))["arms"])
    rows: list[list[str]] = []
    for model, told in results["models"].items():
        cells = [
            f"{one['kl_stop']:.2f} at step {one['stop_step']}; {interval_words(one['kl_end'])}"
            for one in (told["arms"][name] for name in arms)
        ]
        rows.append([MODELS[model], *cells])
    return _markdown(["model", *arms], rows)


def _told_table(results: Mapping[str, Any]) -> str:
    head = ["model", "judged", "highest mean", "not told from it", "pairs told apart", "half width"]
    rows: list[list[str]] = []
    for (model, own), (measure, words) in product(results["models"].items(), MEASURE_WORDS.items()):
        told = own[measure]
        rows.append(
            [
                MODELS[model],
                words,
                told["best"],
                ", ".join(told["not_told_from_best"]) or "none",
                f"{told['num_apart']} of {told['pairs']}",
                f"{told['half_width']:.2f}",
            ]
        )
    return _markdown(head, rows)


def _early_table(results: Mapping[str, Any]) -> str:
    rows = [
        [MODELS[model], f"{float(share):.0%}", *_decision_cells(told, measure)]
        for model, shares in results["early"].items()
        for share, told in shares.items()
        for measure in MEASURES
    ]
    return _markdown(["model", "steps", *_DECISION_HEAD], rows)


def _small_table(results: Mapping[str, Any]) -> str:
    target = results["target"]
    pairs = [(MODELS[m], MODELS[target], shares) for m, shares in results["small"].items()]
    if results["lora_for_full"]:
        pairs.append((MODELS["medium"], MODELS["full"], results["lora_for_full"]))
    rows = [
        [
            f"{source} for {final}",
            f"{float(share):.0%}",
            f"{told['cost']:.2f}",
            *_decision_cells(told, measure),
        ]
        for source, final, shares in pairs
        for share, told in shares.items()
        for measure in MEASURES
    ]
    return _markdown(["looked at, for", "steps", "cost", *_DECISION_HEAD], rows)


_DECISION_HEAD = (
    "judged",
    "rank agreement",
    "on other seeds",
    "would choose",
    "best there",
    "gold lost",
    "gold lost, chosen by one seed",
)


def _decision_cells(told: Mapping[str, Any], measure: str) -> list[str]:
    one = told[measure]
    return [
        MEASURE_WORDS[measure],
        interval_words(one["rank"]) if "rank" in one else "-",
        f"{one['rank_other_seeds']:.2f}" if "rank_other_seeds" in one else "-",
        one["chosen"],
        one["best"],
        _regret_words(one["regret"]) if "regret" in one else "-",
        interval_words(one["one_seed"]),
    ]


def _regret_words(regret: Mapping[str, float]) -> str:
    return "0: the same choice" if regret["low"] == regret["high"] == 0 else interval_words(regret)


STUDY = Study(
    FOLDER,
    blocks,
    analyse,
    draw,
    tables,
    finish=keep_step_s,
    more=("machine.json", "timing.json"),
)

if __name__ == "__main__":
    main(STUDY)
