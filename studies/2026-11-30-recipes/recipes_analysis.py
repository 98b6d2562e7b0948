"""What the recipes do to gold and KL beside no KL and a tuned price, and the verdict on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from experiment import curves
from numpy.typing import NDArray
from recipes_arms import LATE, NO_KL, PUBLISHED, TUNED
from recipes_measures import factor, log_kl_along, log_kl_end
from recipes_units import BLOCKS, units
from recipes_verdicts import FIRST_RULE, MARGIN, VERDICTS, counted, first_rule, verdict

from kltune.statistics.arms import MeanInterval, against, at_end, mean_of, stop_place, when_stopped

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
"""Fixed coefficients and controllers that hardly move, by raw reward per nat; one contrast each against no KL."""
PAIRS = (
    ("target 7, read per sequence", "target 7, read per token"),
    ("warm-up 0.005 to 0.02", "instructgpt"),
    ("target = warm-up median", "instructgpt"),
    ("target 0.1, 0.05, 0.03", "instructgpt"),
    ("conservative, gain 0.5", "conservative: 0.03, h 5000"),
)
"""Rules of thumb beside the fixed beta that they start from (warm-up: end at), or another reading; gold at the end, each
interval alone."""


def analyse(runs: pd.DataFrame, steps: pd.DataFrame, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Gold and KL of every arm, what differs from no KL and from `TUNED`, the verdicts by both rules, and the units.

    ``machine``: machine.json, for the spread of the proxy and the betas in the blocks ``units-*``.
    """
    is_unit, steps_unit = (table["block"].isin(BLOCKS.values()) for table in (runs, steps))
    published, published_steps = runs[~is_unit], steps[~steps_unit]
    gold, kl = curves(published, "gold"), curves(published, "kl_seq")
    ends = {arm: at_end(values) for arm, values in gold.items()}
    stopped = {arm: when_stopped(values) for arm, values in gold.items()}
    end_kl = {arm: log_kl_end(values) for arm, values in kl.items()}
    run_kl = {
        arm: log_kl_along(values) for arm, values in curves(published_steps, "kl_seq").items()
    }
    beside = {
        "end_minus_none": _versus(ends, NO_KL),
        "stopped_minus_none": _versus(stopped, NO_KL),
        "end_kl_times_none": _versus(end_kl, NO_KL),
        "kl_times_none": _versus(run_kl, NO_KL),
        "end_minus_tuned": _versus(ends, TUNED),
        "stopped_minus_tuned": _versus(stopped, TUNED),
    }
    evaluated = [int(step) for step in sorted(published["step"].unique())]
    beta = curves(published_steps, "beta")
    found = {
        arm: {
            "seeds": len(ends[arm]),
            "gold_end": asdict(mean_of(ends[arm])),
            "gold_stopped": asdict(mean_of(stopped[arm])),
            "stop_step": evaluated[stop_place(gold[arm])],
            "kl_end": factor(mean_of(end_kl[arm])),
            "beta_start": float(beta[arm][:, 0].mean()),
            "beta_end": float(np.median(beta[arm][:, -1])),
            "seeds_above_none": int((ends[arm] > ends[NO_KL]).sum()),
            "seeds_below_start": int((ends[arm] < gold[arm][:, 0]).sum()),
            "run_late": arm == LATE,
            **_beside(arm, {name: table[arm] for name, table in beside.items() if arm in table}),
        }
        for arm in sorted(gold, key=list(PUBLISHED).index)
    }
    planned = {
        name: {arm: one for arm, one in table.items() if arm != LATE}
        for name, table in beside.items()
    }
    judged = {arm: one for arm, one in found.items() if arm not in (NO_KL, TUNED)}
    return {
        "runs": int(runs.groupby(["block", "arm", "seed"]).ngroups),
        "published_settings": len(judged),
        "arms": found,
        **_groups(ends),
        "pairs": {
            f"{a} less {b}": asdict(mean_of(ends[a] - ends[b]))
            for a, b in PAIRS
            if a in ends and b in ends
        },
        "first_rule": counted(found, "first_rule", FIRST_RULE),
        "margin": MARGIN,
        "verdicts": counted(judged, "verdict", VERDICTS),
        "lower_kl": _lower_kl(judged),
        "stopped_told_apart_from_none": [
            arm for arm, one in beside["stopped_minus_none"].items() if one.excludes_zero
        ],
        "half_widths": {name: _half_widths(table) for name, table in planned.items()},
        "start": asdict(mean_of(gold[NO_KL][:, 0])),
        "gain_of_tuned": asdict(mean_of(ends[TUNED] - gold[TUNED][:, 0])),
        "units": units(runs, steps, machine),
    }


def _versus(values: dict[str, NDArray[np.float64]], reference: str) -> dict[str, MeanInterval]:
    """Every planned arm minus ``reference``, all at once; the late one with the limit that holds with it among them."""
    planned = against({arm: one for arm, one in values.items() if arm != LATE}, reference)
    if LATE not in values:
        return planned
    return {**planned, LATE: mean_of(values[LATE] - values[reference], len(planned) + 1)}


def _beside(arm: str, one: dict[str, MeanInterval]) -> dict[str, Any]:
    """What is known of an arm beside others, with its verdicts; KL as factors."""
    words = {name: factor(x) if "times" in name else asdict(x) for name, x in one.items()}
    if "end_minus_tuned" in one and arm != NO_KL:
        words["verdict"] = verdict(one["end_minus_tuned"])
    if "kl_times_none" in one:
        words["has_lower_kl"] = one["kl_times_none"].high < 0
        if arm != LATE:
            words["first_rule"] = first_rule(one)
    return words


def _lower_kl(judged: dict[str, Any]) -> dict[str, Any]:
    """Settings whose KL along the run is below that of no KL, and the range of their factors."""
    lower = {
        arm: one["kl_times_none"]["mean"] for arm, one in judged.items() if one["has_lower_kl"]
    }
    ends = {"least": min(lower.values()), "most": max(lower.values())} if lower else {}
    return {"count": len(lower), "arms": list(lower), **ends}


def _groups(ends: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Gold at the end by the size of beta, against no KL, and, thought of afterwards, group by group."""
    there = {name: [ends[arm] for arm in arms if arm in ends] for name, arms in GROUPS.items()}
    grouped = {name: np.mean(values, axis=0) for name, values in there.items() if values}
    steps_up = {f"{b} less {a}": grouped[b] - grouped[a] for a, b in combinations(grouped, 2)}
    groups = against({NO_KL: ends[NO_KL], **grouped}, NO_KL)
    return {
        "groups": {name: asdict(one) for name, one in groups.items()},
        "group_by_group": {name: asdict(mean_of(v, len(steps_up))) for name, v in steps_up.items()},
    }


def _half_widths(table: dict[str, MeanInterval]) -> dict[str, float]:
    halves = [(one.high - one.low) / 2 for one in table.values()]
    return {"narrowest": min(halves), "widest": max(halves)}
