"""What the study found: how each controller moved beta, how it held KL, what gold it ended with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from controllers_arms import (
    BY_GAIN,
    CLIP,
    CURES,
    FIRST,
    FIXED,
    FROM_HIGH,
    HALF,
    SETTINGS,
    STAGED,
    STEADY,
    WHOLE,
    gain_of,
)
from controllers_cures import cured
from controllers_data import Data
from controllers_run import Floats, Run, first_step, measure
from experiment_intervals import at_once, factor_at_once, told

from kltune.statistics.arms import at_end, stop_place, when_stopped

Found = dict[str, Any]
"""A number with its interval, as it stands in results.json."""

INERT = 1.1
"""A beta that moves by less than this factor within a run; kltune's own limit."""
COMPARED = ("log_moved", "log_lowest", "reach_by_end", "log_overshoot", "log_error", "error_sd")
"""Measures by which half the sequences a step are compared with all of them."""


def analyse(runs: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
    """How each controller moved beta, how it held KL, and what gold it ended with.

    Two families, each with comparisons of its own: the settings of `FIRST`, and under ``cures`` those that
    were run after these had been seen.
    """
    whole = Data.of(runs, steps)
    everything = whole.measured()
    data = whole.only(FIRST)
    measured = {name: everything[name] for name in data.runs}
    noise = _noise(data)
    settings = {name: _setting(whole, name, own) for name, own in everything.items()}
    return {
        "runs": sum(len(own) for own in whole.runs.values()),
        "seeds": len(whole.seeds),
        "ended_early": whole.ended_early,
        "settings": {name: settings[name] for name in data.runs},
        "noise": {name: at_once(values) for name, values in noise.items()},
        "swings_less_noise": _oscillating(measured, noise),
        "swung": _swung(measured),
        "to_fixed": {name: _to_fixed(data, measured, name) for name in FIXED if name in data.gold},
        "best_fixed": _best_fixed(data),
        "transfer": _transfer(data, measured),
        "from_high": _from_high(data, measured),
        "stages": _stages(data),
        "cures": {
            "settings": {name: one for name, one in settings.items() if name in CURES},
            **cured(whole, everything),
        },
    }


def predicted_factor(gain: float, steps: int) -> float:
    """The most by which beta can rise within a run; the last step's own KL moves no step any more."""
    return (1 + CLIP * gain) ** (steps - 1)


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
        "moved_most": math.exp(float(own["log_moved"].max())),
        "lowest_beta": factor_at_once(own["log_lowest"]),
        "highest_beta": factor_at_once(own["log_highest"]),
        "highest_beta_by_seed": [
            math.exp(float(of(own["log_highest"]))) for of in (np.min, np.max)
        ],
        "beta_at_target": factor_at_once(own["log_at_target"]),
        "late_beta": factor_at_once(own["log_late_beta"]),
        "reached": int(reached.sum()),
        "reach": at_once(own["reach"]),
        "overshoot": factor_at_once(own["log_overshoot"]),
        "start_again": at_once(own["start_again"]),
        "back": at_once(own["back"]),
        "first_swing": at_once(own["first_swing"]),
        "under_control": int(np.isfinite(own["control"]).sum()),
        "control": at_once(own["control"]),
        "late_kl_over_target": factor_at_once(own["log_error"]),
        "end_kl_over_target": factor_at_once(own["log_end_error"]),
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
    """Swings per 10 steps of a fixed beta about the run's own late KL: what a KL does that nothing steers.

    As with a controller, a run that comes to this KL too late to be counted has none (nan).
    """
    found = {}
    for name in FIXED:
        if name in data.runs:
            own = []
            for run in data.runs[name]:
                late = float(np.exp(run.late_errors().mean()))
                free = Run(run.kl_T, run.beta_T, run.target_T * late)
                own.append(measure(free)["swings"])
            found[name] = np.array(own)
    return found


def _oscillating(measured: Mapping[str, Mapping[str, Floats]], noise: dict[str, Floats]) -> Found:
    """Swings of a controller less those of `STEADY`, over the seeds where both can be counted; all at once."""
    if STEADY not in noise:
        return {}
    names = [name for name in measured if name not in FIXED and name not in STAGED]
    found = {name: at_once(measured[name]["swings"] - noise[STEADY], len(names)) for name in names}
    return {name: {**one, "told": told(one)} for name, one in found.items()}


def _swung(measured: Mapping[str, Mapping[str, Floats]]) -> Found:
    """Of all runs with the gains of `BY_GAIN`: how many swung at all, and how many twice, so that there is a period."""
    own = [measured[name] for name in BY_GAIN if name in measured]
    times = {"once or more": "first_swing", "twice or more": "period"}
    return {
        "runs": sum(len(one["swings"]) for one in own),
        **{word: sum(int(np.isfinite(m[key]).sum()) for m in own) for word, key in times.items()},
    }


def _to_fixed(data: Data, measured: Mapping[str, Mapping[str, Floats]], reference: str) -> Found:
    """Gold and late KL of every other setting against a fixed beta's; the intervals of one measure hold at once."""
    gold, count = data.gold, len(data.gold) - 1
    own = {"gold_end": at_end, "gold_stopped": when_stopped}
    kl = {"mid_kl": "log_mid_kl", "late_kl": "log_late_kl"}
    return {
        name: {
            **{
                key: at_once(of(gold[name]) - of(gold[reference]), count) for key, of in own.items()
            },
            **{
                key: factor_at_once(measured[name][of] - measured[reference][of], count)
                for key, of in kl.items()
            },
        }
        for name in gold
        if name != reference
    }


def _best_fixed(data: Data) -> str | None:
    """The fixed beta of the highest gold at the end."""
    means = {name: at_end(data.gold[name]).mean() for name in FIXED if name in data.gold}
    return max(means, key=lambda name: means[name]) if means else None


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
    found["gap between seeds"] = math.exp(float(np.mean(between)))
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


def passing_step(start: float, end: float, gain: float) -> int:
    """The first step (from 1) at whose start beta is at ``end`` or below, if KL stays so low that beta falls as fast as it can."""
    return 1 + math.ceil(math.log(start / end) / -math.log(1 - CLIP * gain))


def _from_high(data: Data, measured: Mapping[str, Mapping[str, Floats]]) -> Found:
    """From a beta that is far too high: when it is down at `STEADY`'s, as foretold and as it was, and when KL is at its target."""
    if not {*FROM_HIGH, STEADY} <= set(data.runs):
        return {}
    wanted = float(str(SETTINGS[STEADY]["beta"]))
    found: Found = {"wanted_beta": wanted}
    for name, setting in FROM_HIGH.items():
        own = data.runs[name]
        found[name] = {
            "foretold": passing_step(float(str(setting["beta"])), wanted, gain_of(name)),
            "passed": at_once(np.array([first_step(run.beta_T <= wanted, 1) for run in own])),
            "reached": int(np.isfinite(measured[name]["reach"]).sum()),
            "reach": at_once(measured[name]["reach"]),
            "kl_over_target": factor_at_once(measured[name]["log_error"]),
            "end_beta": factor_at_once(np.array([np.log(run.beta_T[-1]) for run in own])),
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
