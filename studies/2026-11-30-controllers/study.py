"""Fixed or adaptive: gains, targets, rules and stages of the controller that moves beta.

python studies/2026-11-30-controllers/study.py    about 13 minutes on two cores; flags: studies/experiment.py
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

from kltune.statistics.arms import at_end, stop_place, when_stopped

Floats = NDArray[np.float64]
Found = dict[str, Any]
"""A number with its interval, as it stands in results.json."""

SEEDS = range(100, 108)
"""Fixed before the first run; none was used to make the task."""
K1 = "k1-reward"
ROWS = 64
"""Sequences per step: 8 prompts x 8 completions."""
TARGET = 0.1
"""nats/token; about 1.3 nats/sequence, where gold still rises."""
GAINS = (0.0064, 0.1, 0.3, 1.0, 3.0)
"""Sequences per step / horizon; .0064 is the usual horizon of 10,000."""
STEERED = {
    "search.controller": {"choice": ["fixed", "proportional"]},
    "search.target_kl": {"log": [0.02, 0.5], "when": {"controller": "proportional"}},
    "search.horizon": {"log": [64, 6400], "when": {"controller": "proportional"}},
}


def steered(
    gain: float, target: float = TARGET, beta: float = 0.02, rows: int = ROWS
) -> dict[str, object]:
    """The proportional controller by its gain."""
    return {
        "beta": beta,
        "penalty": K1,
        "controller": "proportional",
        "target_kl": target,
        "horizon": rows / gain,
    }


def rule(name: str) -> dict[str, object]:
    """A threshold rule by its name."""
    return {"beta": 0.02, "penalty": K1, "controller": f"threshold-{name}", "target_kl": TARGET}


FIXED = {f"fixed {beta:g}": {"beta": beta, "penalty": K1} for beta in (0.02, 0.2)}
BY_GAIN = {f"gain {gain:g}": steered(gain) for gain in GAINS}
BY_TARGET = {f"gain 0.3, target {target:g}": steered(0.3, target) for target in (0.03, 0.3)}
FROM_HIGH = {f"gain {gain:g} from beta 2": steered(gain, beta=2.0) for gain in (0.1, 1.0)}
RULES = {f"threshold {name}": rule(name) for name in ("ppo2017", "1.2x0.8", "1.5x")}
STAGED = {"gain 0.3, target 0.3 then 0.1 then 0.03": steered(0.3, 0.3)}
HALF = {
    "32 a step, same gain 0.3": steered(0.3, rows=ROWS // 2),
    "32 a step, same horizon": steered(0.15, rows=ROWS // 2),
}
"""Half the sequences a step: horizon 107 keeps the gain, horizon 213 is that of gain .3 with 64."""
STAGES = ((0, 1), (0.33, 0.33), (0.67, 0.1))
"""Of the staged target: from this share of the run on, this factor."""
SETTINGS = {**FIXED, **BY_GAIN, **BY_TARGET, **FROM_HIGH, **RULES, **STAGED, **HALF}
CLIP = 0.2
"""The controller's error is cut off here."""
WHOLE = "gain 0.3"
"""What half the sequences a step are compared with."""
STEADY = "fixed 0.2"
"""A fixed beta whose KL settles: what swings without a controller."""
SMOOTHED = 3
"""Steps over which a KL is meaned before it is compared with its target."""
HIGH, LOW = 1.25, 0.8
"""A swing crosses this band of KL over target; one that only comes up to the target makes none."""
LEAST = 10
"""Steps below which swings are not counted."""
ENOUGH = 4
"""Seeds that a mean in a table needs."""
INERT = 1.1
"""A beta that moves by less than this factor within a run; kltune's own limit."""


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """Settings x seeds; a block for each trainer and section `control`."""
    if small:
        few = {name: BY_GAIN[name] for name in ("gain 0.0064", "gain 1")}
        size = {"model.base": "builtin:kitchen-small", "trainer.steps": 40, "evaluate.every": 20}
        return {"arms": Block(few, SEEDS[:2], size)}
    arms = {**FIXED, **BY_GAIN, **BY_TARGET, **FROM_HIGH, **RULES}
    stages = {**STEERED, "control.targets": [list(stage) for stage in STAGES]}
    return {
        "arms": Block(arms, SEEDS),
        "staged": Block(STAGED, SEEDS, stages),
        "half": Block(HALF, SEEDS, {"trainer.prompts": 4}),
    }


# ---------------------------------------------------------------- the arithmetic


def at_once(values_S: Floats, comparisons: int = 1) -> Found:
    """Mean over seeds with its 95 % interval; ``comparisons`` such intervals hold at once.

    Bonferroni's limit: settings have their own spreads. Seeds without a value (nan) are left out.
    """
    values_S = values_S[np.isfinite(values_S)]
    num = len(values_S)
    mean = float(np.mean(values_S)) if num else math.nan
    if num < 2:
        return {"mean": mean, "low": -math.inf, "high": math.inf, "half": math.inf, "num": num}
    spread = float(np.std(values_S, ddof=1)) / math.sqrt(num)
    half = float(stats.t.isf(0.025 / comparisons, num - 1)) * spread
    return {"mean": mean, "low": mean - half, "high": mean + half, "half": half, "num": num}


def factor_at_once(logs_S: Floats, comparisons: int = 1) -> Found:
    """Likewise of factors whose logarithms are given: their geometric mean."""
    found = at_once(logs_S, comparisons)
    return {k: v if k == "num" else _exp(v) for k, v in found.items()}


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)


def told(found: Mapping[str, float], null: float = 0.0) -> str:
    """Where an interval lies: ``below``, ``above`` or around (``untold``) a value."""
    if found["high"] < null:
        return "below"
    return "above" if found["low"] > null else "untold"


def smoothed(values_T: Floats) -> Floats:
    """Mean of a step and the two before it (of what there is, at the start)."""
    sums = np.cumsum(np.concatenate([np.zeros(1), values_T]))
    ends = np.arange(1, len(values_T) + 1)
    starts = np.maximum(ends - SMOOTHED, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def swing_steps(relative_T: Floats) -> list[int]:
    """Places at which KL over target has crossed the whole band: from above `HIGH` to below `LOW`, or back.

    Noise within the band makes none, however often it crosses the target itself.
    """
    found: list[int] = []
    side = 0
    for place, value in enumerate(relative_T):
        now = 1 if value > HIGH else -1 if value < LOW else side
        if side and now != side:
            found.append(place)
        side = now
    return found


def swings_of(relative_T: Floats) -> tuple[float, float]:
    """(swings per 10 steps, period in steps): the period is twice the mean time from swing to swing.

    nan where there are fewer than `LEAST` steps, or than two swings.
    """
    if len(relative_T) < LEAST:
        return math.nan, math.nan
    places = swing_steps(relative_T)
    period = 2 * float(np.mean(np.diff(places))) if len(places) > 1 else math.nan
    return 10 * len(places) / len(relative_T), period


def target_at(name: str, step_T: Floats, steps: int) -> Floats:
    """Target in force at each step (from 1), nats/token; of a fixed beta `TARGET`, for comparison."""
    given = SETTINGS[name].get("target_kl", TARGET)
    assert isinstance(given, float)
    if name not in STAGED:
        return np.full(len(step_T), given)
    shares = (step_T - 1) / steps
    return given * np.array([[f for start, f in STAGES if start <= s][-1] for s in shares])


def gain_of(name: str) -> float:
    """Sequences per step / horizon; nan where no proportional controller acts."""
    horizon = SETTINGS[name].get("horizon")
    return (
        math.nan if horizon is None else (ROWS // 2 if name in HALF else ROWS) / float(str(horizon))
    )


def predicted_factor(gain: float, steps: int) -> float:
    """The most by which beta can rise within a run; the last step's own KL moves no step any more."""
    return (1 + CLIP * gain) ** (steps - 1)


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

    def late_errors(self) -> Floats:
        """log(KL / target) in the last third."""
        start = len(self.kl_T) - len(self.kl_T) // 3
        return np.log(self.kl_T[start:] / self.target_T[start:])


def first_step(is_there_T: NDArray[np.bool_], reach: int | None) -> float:
    """The first step (from 1) that is so, in a series that begins at step ``reach``; nan where none is."""
    places = np.flatnonzero(is_there_T)
    return float((reach or 0) + places[0]) if len(places) else math.nan


def measure(run: Run) -> dict[str, float]:
    """What the controller of one run did; logarithms of factors where a name says ``log``."""
    late, reach, log_beta_T = run.late_errors(), run.reach, np.log(run.beta_T)
    after = run.relative_T[reach - 1 :] if reach else np.zeros(0)
    beta_after = run.beta_T[reach - 1 :] if reach else np.zeros(0)
    swings, period = swings_of(after)
    third = len(run.kl_T) // 3
    return {
        "log_end": float(log_beta_T[-1] - log_beta_T[0]),
        "log_moved": float(log_beta_T.max() - log_beta_T.min()),
        "log_lowest": float(log_beta_T.min()),
        "log_at_target": float(log_beta_T[reach - 1]) if reach else math.nan,
        "log_late_beta": float(log_beta_T[-third:].mean()),
        "log_late_kl": float(np.log(run.kl_T[-third:]).mean()),
        "start_again": first_step(beta_after >= run.beta_T[0], reach),
        "back": first_step(after < 1, reach),
        "half_period": first_step(after < 1, reach) - float(reach or math.nan),
        "reach": float(reach or math.nan),
        "reach_by_end": float(reach or len(run.kl_T)),
        "log_overshoot": float(np.log(after.max())) if reach else math.nan,
        "log_error": float(late.mean()),
        "error_sd": float(late.std(ddof=1)),
        "error_rms": float(np.sqrt((late**2).mean())),
        "swings": swings,
        "period": period,
    }


# ---------------------------------------------------------------- the analysis


@dataclass(frozen=True)
class Data:
    """Runs by setting, seeds in rising order."""

    runs: dict[str, list[Run]]
    gold: dict[str, Floats]
    """S seeds x C evaluations."""
    evals: list[int]
    """Steps of the evaluations."""
    num_steps: int
    seeds: list[int]
    ended_early: list[str]

    @classmethod
    def of(cls, runs: pd.DataFrame, steps: pd.DataFrame) -> Data:
        """Of runs.csv and steps.csv."""
        last = int(steps["step"].max())
        found: dict[str, list[Run]] = {}
        early = []
        for (name, seed), rows in steps.groupby(["arm", "seed"], sort=False):
            rows = rows.sort_values("step")
            step_T = rows["step"].to_numpy(float)
            kl_T, beta_T = rows["kl_token"].to_numpy(), rows["beta"].to_numpy()
            found.setdefault(name, []).append(Run(kl_T, beta_T, target_at(name, step_T, last)))
            early += [f"{name}, seed {seed}"] if step_T[-1] < last else []
        seeds = sorted(steps["seed"].unique())
        evals = sorted(runs["step"].unique())
        return cls(found, curves(runs, "gold"), evals, last, seeds, early)

    def measured(self) -> dict[str, dict[str, Floats]]:
        """Each measure of each setting, by seed."""
        whole = {name: [measure(run) for run in own] for name, own in self.runs.items()}
        return {
            name: {key: np.array([one[key] for one in own]) for key in own[0]}
            for name, own in whole.items()
        }


def analyse(runs: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
    """How each controller moved beta, how it held KL, and what gold it ended with."""
    data = Data.of(runs, steps)
    measured = data.measured()
    noise = _noise(data)
    return {
        "runs": sum(len(own) for own in data.runs.values()),
        "seeds": len(data.seeds),
        "ended_early": data.ended_early,
        "settings": {name: _setting(data, name, own) for name, own in measured.items()},
        "noise": {name: at_once(values) for name, values in noise.items()},
        "swings_less_noise": _oscillating(measured, noise),
        "to_fixed": {name: _to_fixed(data, measured, name) for name in FIXED if name in data.gold},
        "best_fixed": _best_fixed(data),
        "transfer": _transfer(data, measured),
        "from_high": _from_high(data, measured),
        "stages": _stages(data),
    }


def _setting(data: Data, name: str, own: Mapping[str, Floats]) -> Found:
    gain, gold = gain_of(name), data.gold[name]
    reached = np.isfinite(own["reach"])
    found: Found = {
        "gain": gain,
        "target": SETTINGS[name].get("target_kl"),
        "horizon": SETTINGS[name].get("horizon"),
        "predicted_factor": predicted_factor(gain, data.num_steps),
        "end_factor": factor_at_once(own["log_end"]),
        "moved_factor": factor_at_once(own["log_moved"]),
        "moved_most": _exp(float(own["log_moved"].max())),
        "lowest_beta": factor_at_once(own["log_lowest"]),
        "beta_at_target": factor_at_once(own["log_at_target"]),
        "late_beta": factor_at_once(own["log_late_beta"]),
        "reached": int(reached.sum()),
        "reach": at_once(own["reach"]),
        "overshoot": factor_at_once(own["log_overshoot"]),
        "start_again": at_once(own["start_again"]),
        "back": at_once(own["back"]),
        "half_period": at_once(own["half_period"]),
        "late_kl_over_target": factor_at_once(own["log_error"]),
        "late_sd": at_once(own["error_sd"]),
        "late_rms": at_once(own["error_rms"]),
        "swings": at_once(own["swings"]),
        "swinging": int((np.nan_to_num(own["swings"]) > 0).sum()),
        "period": at_once(own["period"]),
        "gold_end": at_once(at_end(gold)),
        "gold_stopped": at_once(when_stopped(gold)),
        "stop_step": int(data.evals[stop_place(gold)]),
        "gold_sd": float(np.std(at_end(gold), ddof=1)),
    }
    found["inert"] = {
        "predicted": bool(found["predicted_factor"] < INERT),
        "measured": bool(found["moved_most"] < INERT),
    }
    return found


def _noise(data: Data) -> dict[str, Floats]:
    """Swings per 10 steps of a fixed beta about the run's own late KL: what a KL does that nothing steers."""
    found = {}
    for name in FIXED:
        if name in data.runs:
            own = []
            for run in data.runs[name]:
                late = float(np.exp(run.late_errors().mean()))
                free = Run(run.kl_T, run.beta_T, run.target_T * late)
                own.append(measure(free)["swings"])
            found[name] = np.nan_to_num(np.array(own))
    return found


def _oscillating(measured: Mapping[str, Mapping[str, Floats]], noise: dict[str, Floats]) -> Found:
    """Swings of a controller less those of `STEADY`, seed by seed; all at once."""
    if STEADY not in noise:
        return {}
    names = [name for name in measured if name not in FIXED and name not in STAGED]
    found = {name: at_once(measured[name]["swings"] - noise[STEADY], len(names)) for name in names}
    return {name: {**one, "told": told(one)} for name, one in found.items()}


def _to_fixed(data: Data, measured: Mapping[str, Mapping[str, Floats]], reference: str) -> Found:
    """Gold and late KL of every other setting against a fixed beta's; the intervals of one measure hold at once."""
    gold, count = data.gold, len(data.gold) - 1
    own = {"gold_end": at_end, "gold_stopped": when_stopped}
    late = {name: one["log_late_kl"] for name, one in measured.items()}
    return {
        name: {
            **{
                key: at_once(of(gold[name]) - of(gold[reference]), count) for key, of in own.items()
            },
            "late_kl": factor_at_once(late[name] - late[reference], count),
        }
        for name in gold
        if name != reference
    }


def _best_fixed(data: Data) -> str | None:
    """The fixed beta of the highest gold at the end."""
    means = {name: at_end(data.gold[name]).mean() for name in FIXED if name in data.gold}
    return max(means, key=lambda name: means[name]) if means else None


COMPARED = ("log_moved", "log_lowest", "reach_by_end", "log_overshoot", "log_error", "error_sd")
"""Measures by which half the sequences a step are compared with all of them."""


def _transfer(data: Data, measured: Mapping[str, Mapping[str, Floats]]) -> Found:
    """Runs of half the sequences against those of `WHOLE`, seed by seed."""
    if not {*HALF, WHOLE} <= set(data.runs):
        return {}
    count = len(HALF) * len(COMPARED)
    gaps = {name: _beta_gap(data.runs[name], data.runs[WHOLE]) for name in HALF}
    found: Found = {
        name: {
            "beta_gap": factor_at_once(gaps[name]),
            **{key: _compared(key, measured[name], measured[WHOLE], count) for key in COMPARED},
        }
        for name in HALF
    }
    same_gain, same_horizon = HALF
    found["gap, same horizon over same gain"] = factor_at_once(gaps[same_horizon] - gaps[same_gain])
    own = data.runs[WHOLE]
    between = [_beta_gap([a], [b])[0] for i, a in enumerate(own) for b in own[:i]]
    found["gap between seeds"] = _exp(float(np.mean(between)))
    return found


def _compared(
    key: str, some: Mapping[str, Floats], others: Mapping[str, Floats], count: int
) -> Found:
    """Difference of a measure, or the factor where logarithms are given."""
    of = factor_at_once if key.startswith("log") else at_once
    return of(some[key] - others[key], count)


def _beta_gap(some: Sequence[Run], others: Sequence[Run]) -> Floats:
    """Per pair of runs the mean over steps of |log beta - log beta|."""
    return np.array(
        [
            np.abs(np.log(a.beta_T) - np.log(b.beta_T)).mean()
            for a, b in zip(some, others, strict=True)
        ]
    )


def _from_high(data: Data, measured: Mapping[str, Mapping[str, Floats]]) -> Found:
    """Steps until KL is at its target from a beta that is far too high, and what the gain alone foretells.

    The forecast: beta falls by 0.2 x gain a step until it is where `WHOLE` has it in its last third.
    """
    if not {*FROM_HIGH, WHOLE} <= set(data.runs):
        return {}
    wanted = measured[WHOLE]["log_late_beta"]
    found: Found = {"wanted_beta": factor_at_once(wanted)}
    for name, setting in FROM_HIGH.items():
        way = np.log(float(str(setting["beta"]))) - wanted
        pace = -math.log(1 - CLIP * gain_of(name))
        found[name] = {
            "reached": int(np.isfinite(measured[name]["reach"]).sum()),
            "reach": at_once(measured[name]["reach"]),
            "foretold": at_once(way / pace),
            "kl_over_target": factor_at_once(measured[name]["log_error"]),
            "end_beta": factor_at_once(np.array([np.log(r.beta_T[-1]) for r in data.runs[name]])),
        }
    return found


def _stages(data: Data) -> Found:
    """KL over target in the second half of each stage, and beta at its end."""
    found: Found = {}
    for name in STAGED:
        for run in data.runs.get(name, []):
            for target in dict.fromkeys(run.target_T):
                places = np.flatnonzero(run.target_T == target)
                late = places[len(places) // 2 :]
                own = found.setdefault(f"{target:.2g}", {"error": [], "beta": []})
                own["error"].append(np.log(run.kl_T[late] / target).mean())
                own["beta"].append(np.log(run.beta_T[late[-1]]))
    return {
        target: {
            "kl_over_target": factor_at_once(np.array(own["error"])),
            "beta": factor_at_once(np.array(own["beta"])),
        }
        for target, own in found.items()
    }


# ---------------------------------------------------------------- the figures

COLOURS = ("#0072b2", "#d55e00", "#009e73")
GREY = "#606870"


def draw(runs: pd.DataFrame, steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """gains.png: KL and beta along the run by gain; tracking.png: error, swings, gold by gain; others.png."""
    data = Data.of(runs, steps)
    by_gain = {f"gain {gain:g}": [f"gain {gain:g}"] for gain in GAINS}
    others = {
        "from beta 2": list(FROM_HIGH),
        "64 or 32 sequences a step": [WHOLE, *HALF],
        "threshold rules": list(RULES),
        "staged target": list(STAGED),
    }
    save_figure(out / "gains.png", 10, 4.6, lambda figure: _tracks(figure, data, by_gain))
    save_figure(out / "tracking.png", 10, 3.6, lambda figure: _by_gain(figure, results))
    if not {*FROM_HIGH, *RULES, *STAGED}.isdisjoint(data.runs):
        save_figure(out / "others.png", 10, 5.2, lambda figure: _tracks(figure, data, others))


def _tracks(figure: Any, data: Data, panels: Mapping[str, Sequence[str]]) -> None:
    """KL over target above, beta below: geometric mean over seeds, its 95 % interval, every seed thinly."""
    shown = {title: [n for n in names if n in data.runs] for title, names in panels.items()}
    shown = {title: names for title, names in shown.items() if names}
    axes = figure.subplots(2, len(shown), sharex=True, sharey="row", squeeze=False)
    for (title, names), above, below in zip(shown.items(), *axes, strict=True):
        above.set_title(title, fontsize=10)
        above.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
        for name, colour in zip(names, COLOURS, strict=False):
            own = data.runs[name]
            label = (
                None if name == title else name.replace(f" {title}", "").removeprefix("threshold ")
            )
            _band(above, [run.kl_T / run.target_T for run in own], colour, None)
            _band(below, [run.beta_T for run in own], colour, label if len(names) > 1 else None)
        if len(names) > 1:
            below.legend(fontsize=7.5, loc="upper left", handlelength=1.2)
        below.set_xlabel("step")
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_ylim(0.03, 25)
    axes[0, 0].set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
    axes[0, 0].set_ylabel("KL / target")
    axes[1, 0].set_yscale("log")
    axes[1, 0].set_ylabel("beta, reward per nat")


def _band(ax: Any, values: Sequence[Floats], colour: str, label: str | None) -> None:
    num = min(len(one) for one in values)
    logs_ST = np.log([np.maximum(one[1:num], 1e-9) for one in values])
    step_T = np.arange(2, num + 1)
    for one in logs_ST:
        ax.plot(step_T, np.exp(one), color=colour, linewidth=0.4, alpha=0.35)
    found = [factor_at_once(column) for column in logs_ST.T]
    low, mean, high = (np.array([one[key] for one in found]) for key in ("low", "mean", "high"))
    ax.fill_between(step_T, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(step_T, mean, color=colour, linewidth=1.6, label=label)


def _by_gain(figure: Any, results: Found) -> None:
    settings = results["settings"]
    gains = [gain for gain in GAINS if f"gain {gain:g}" in settings]
    panels = (
        ("late_kl_over_target", "KL / target, last third", 1.0),
        ("late_sd", "sd of log(KL / target), last third", None),
        ("swings", "swings per 10 steps", None),
        ("gold_end", "gold at the end", None),
    )
    for ax, (key, label, line) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for gain in gains:
            _point(ax, gain, settings[f"gain {gain:g}"][key], COLOURS[0])
        ax.set_xscale("log")
        ax.set_xticks(gains, [f"{gain:g}" for gain in gains])
        ax.minorticks_off()
        ax.set_xlabel("gain")
        ax.set_title(label, fontsize=9.5)
        ax.set_ylim(bottom=-0.04 * ax.get_ylim()[1])
        if line is not None:
            ax.axhline(line, color=GREY, linewidth=0.8, linestyle=":")
        for name, colour in zip(FIXED, COLOURS[1:], strict=True):
            _beside(ax, key, name, colour, results)


def _beside(ax: Any, key: str, name: str, colour: str, results: Found) -> None:
    """The fixed beta's gold as a band."""
    one = results["settings"].get(name, {}).get(key)
    if one is not None and key == "gold_end":
        ax.axhspan(one["low"], one["high"], color=colour, alpha=0.15, linewidth=0)
        ax.axhline(one["mean"], color=colour, linewidth=1, label=name)
        ax.legend(fontsize=7.5)


def _point(ax: Any, x: float, one: Found, colour: str) -> None:
    around = [[one["mean"] - one["low"]], [one["high"] - one["mean"]]]
    ax.errorbar(x, one["mean"], yerr=around, color=colour, marker="o", markersize=5, capsize=2.5)


# ---------------------------------------------------------------- the tables


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The README's tables by name."""
    return {
        "beta": _beta_table(results),
        "tracking": _tracking_table(results),
        "gold": _gold_table(results),
        "transfer": _transfer_table(results["transfer"]),
        "from-high": _from_high_table(results["from_high"]),
        "stages": _stages_table(results["stages"]),
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _words(found: Found, digits: int = 2) -> str:
    """A mean and its interval, where enough seeds have a value."""
    return interval_words(found, digits) if found["num"] >= ENOUGH else "-"


def _digits(found: Found) -> str:
    """Likewise of what spans powers of ten: two digits each."""
    if found["num"] < 2:
        return "-"
    mean, low, high = (f"{found[name]:.2g}" for name in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _starred(found: Found | None, null: float = 0.0) -> str:
    """With a star where told apart from ``null``."""
    if found is None or found["num"] < ENOUGH:
        return "-"
    return interval_words(found) + ("*" if told(found, null) != "untold" else "")


def _beta_table(results: Found) -> str:
    head = [
        "setting",
        "gain",
        "beta can rise by at most, times",
        "beta moved by (highest / lowest)",
        "beta at the end / at the start",
        "lowest beta",
        "beta when KL is first at its target",
        "beta in the last third",
        "inert: foretold, measured",
    ]
    rows = []
    for name, one in results["settings"].items():
        has_gain = one["gain"] is not None
        inert = ", ".join("yes" if one["inert"][key] else "no" for key in ("predicted", "measured"))
        rows.append(
            [
                name,
                f"{one['gain']:.3g}" if has_gain else "-",
                f"{one['predicted_factor']:.3g}" if has_gain else "-",
                *(_digits(one[key]) for key in ("moved_factor", "end_factor")),
                *(_digits(one[key]) for key in ("lowest_beta", "beta_at_target", "late_beta")),
                inert if has_gain else "-",
            ]
        )
    return _table(head, rows)


def _tracking_table(results: Found) -> str:
    head = [
        "setting",
        "seeds that reached the target",
        "at step",
        "overshoot: highest KL / target",
        "seeds back under it by the end, at step",
        "beta back at its start, at step",
        "KL / target, last third",
        "KL in the last third, times fixed 0.02",
        "sd of log(KL / target), last third",
        "swings per 10 steps",
        "less those of a fixed beta",
        "runs with two swings or more",
    ]
    rows = []
    for name, one in results["settings"].items():
        period, back = one["period"], one["back"]
        is_steady = name not in STAGED
        late = results["to_fixed"].get("fixed 0.02", {}).get(name, {}).get("late_kl")
        rows.append(
            [
                name,
                f"{one['reached']} of {results['seeds']}",
                _words(one["reach"], 1),
                _words(one["overshoot"]) if is_steady else "-",
                f"{back['num']}, {_words(back, 1)}".removesuffix(", -") if is_steady else "-",
                "-" if name in FIXED else _words(one["start_again"], 1),
                _words(one["late_kl_over_target"]),
                _starred(late, 1.0),
                _words(one["late_sd"]),
                _words(one["swings"]) if is_steady else "-",
                _starred(results["swings_less_noise"].get(name)),
                period["num"] if is_steady else "-",
            ]
        )
    return _table(head, rows)


def _gold_table(results: Found) -> str:
    head = ["setting", "gold at the end", "sd over seeds"]
    head += [f"less {name}" for name in results["to_fixed"]]
    head += ["gold when stopped", "stop at step"] + [f"less {name}" for name in results["to_fixed"]]
    rows = []
    for name, one in results["settings"].items():
        less = [own.get(name, {}) for own in results["to_fixed"].values()]
        rows.append(
            [
                name,
                interval_words(one["gold_end"]),
                f"{one['gold_sd']:.2f}",
                *(_starred(each.get("gold_end")) for each in less),
                interval_words(one["gold_stopped"]),
                one["stop_step"],
                *(_starred(each.get("gold_stopped")) for each in less),
            ]
        )
    return _table(head, rows)


def _transfer_table(found: Found) -> str:
    head = [
        "against 64 a step, gain 0.3",
        "mean gap of log beta",
        "beta moved by, times",
        "lowest beta, times",
        "steps to the target, less",
        "overshoot, times",
        "KL in the last third, times",
        "sd of log(KL / target), less",
    ]
    rows = [
        [name, interval_words(found[name]["beta_gap"])]
        + [_starred(found[name][key], float(key.startswith("log"))) for key in COMPARED]
        for name in HALF
        if name in found
    ]
    return _table(head, rows)


def _from_high_table(found: Found) -> str:
    head = [
        "setting",
        "seeds that reached the target",
        "at step",
        "foretold from the gain",
        "beta at the end",
        "KL / target, last third",
    ]
    rows = [
        [
            name,
            found[name]["reached"],
            _words(found[name]["reach"], 1),
            _words(found[name]["foretold"], 1),
            _digits(found[name]["end_beta"]),
            _words(found[name]["kl_over_target"]),
        ]
        for name in FROM_HIGH
        if name in found
    ]
    return _table(head, rows)


def _stages_table(found: Found) -> str:
    head = ["target, nats/token", "KL / target, second half of the stage", "beta at its end"]
    rows = [
        [target, interval_words(one["kl_over_target"]), _digits(one["beta"])]
        for target, one in found.items()
    ]
    return _table(head, rows)


STUDY = Study(Path(__file__).parent, blocks, analyse, draw, tables, keeps_steps=True)

if __name__ == "__main__":
    main(STUDY)
