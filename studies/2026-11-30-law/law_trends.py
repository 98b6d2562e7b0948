"""What a better proxy changes: slopes along each axis, and by agreement with gold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from law_arms import AXES, block_name, level_of
from law_form import coefficients
from law_intervals import mean_of_draws
from law_peak import highest_kl
from law_runs import Floats, Runs, bon_runs

from kltune.statistics.arms import at_end, when_stopped
from kltune.statistics.law import LawForm


def trends(
    of_level: Mapping[str, Runs], bon: Mapping[str, Runs], proxies: pd.DataFrame
) -> dict[str, Any]:
    """By axis and measure: the change for one step of the axis, a slope for each draw.

    The axes of one measure hold at once, measures each alone.
    """
    found: dict[str, Any] = {}
    for axis, (levels, place, step) in AXES.items():
        names = [level_of(block_name(p, 0)) for p in levels]
        if not set(names) <= set(of_level):
            continue
        x_L = np.array([place(p) for p in levels])
        told: dict[str, Any] = {"step": step, "levels": names}
        for measure, of in _MEASURES.items():
            values_LS = np.array([of(of_level[name], bon[name]) for name in names])
            told[measure] = mean_of_draws(_slopes(x_L, values_LS), len(AXES))
        for kind in ("agreement", "agreement_train"):
            seen_LS = np.array(
                [proxies[proxies["level"] == name].sort_values("draw")[kind] for name in names]
            )
            told[kind] = mean_of_draws(_slopes(x_L, seen_LS), len(AXES))
        found[axis] = told
    return found


def bon_trend(axis: str, bon: pd.DataFrame) -> dict[str, Any]:
    """Change of best-of-n's highest gain for one step of an axis, on other prompts than those of `trends`."""
    levels, place, _ = AXES[axis]
    values_LS = np.array(
        [when_stopped(bon_runs(bon, level_of(block_name(p, 0))).gain_SC) for p in levels]
    )
    return mean_of_draws(_slopes(np.array([place(p) for p in levels]), values_LS), len(AXES))


def by_agreement(
    of_level: Mapping[str, Runs], told: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Change of the peak and of the end for ten points more agreement with gold, over all levels; a slope a draw."""
    found: dict[str, Any] = {}
    for kind in ("agreement", "agreement_train"):
        x_L = np.array([told[level][kind]["mean"] for level in of_level]) / 0.1
        for measure in ("peak_gain", "end_gain"):
            of = _MEASURES[measure]
            values_LS = np.array([of(own, own) for own in of_level.values()])
            found[f"{measure}_by_{kind}"] = mean_of_draws(_slopes(x_L, values_LS))
    return found


def _slopes(x_L: Floats, values_LS: Floats) -> Floats:
    """Least-squares slope of each draw."""
    off_L = x_L - x_L.mean()
    return off_L @ values_LS / (off_L @ off_L)


def _law_part(own: Runs, index: int) -> Floats:
    return coefficients(own, LawForm.RL, 2)[:, index]


_MEASURES: dict[str, Callable[[Runs, Runs], Floats]] = {
    "peak_gain": lambda own, _: when_stopped(own.gain_SC),
    "end_gain": lambda own, _: at_end(own.gain_SC),
    "log_peak_kl": lambda own, _: np.log(highest_kl(own)),
    "log_end_kl": lambda own, _: np.log(at_end(own.kl_SC)),
    "a": lambda own, _: _law_part(own, 0),
    "b": lambda own, _: _law_part(own, 1),
    "bon_peak_gain": lambda _, bon: when_stopped(bon.gain_SC),
}
