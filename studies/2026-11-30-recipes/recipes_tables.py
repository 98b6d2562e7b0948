"""The README's tables of the study of recipes, from results.json."""

from __future__ import annotations

from typing import Any

from experiment_tables import interval_words, markdown
from recipes_arms import PUBLISHED, TUNED


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The README's tables."""
    head = (
        "setting",
        "as published",
        "beta at the start → end",
        "KL along the run, times no KL's",
        "KL at the end",
        "gold at the end",
        f"minus {TUNED}",
        "gold when stopped (step)",
        "seeds below their start",
        "gold, by the second rule",
    )
    groups = [(name, interval_words(one)) for name, one in results["groups"].items()]
    return {
        "arms": markdown(head, [_row(arm, one) for arm, one in results["arms"].items()]),
        "groups": markdown(("beta at the start", "gold at the end minus no KL"), groups),
        "pairs": markdown(
            ("rule", "beta at the start → end", "gold at the end minus", "that is"),
            [_pair(name, one, results["arms"]) for name, one in results["pairs"].items()],
        ),
        **_units(results["units"]),
    }


def _row(arm: str, one: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{arm}, run late" if one["run_late"] else arm,
        PUBLISHED[arm],
        _moved(one),
        _words(one, "kl_times_none"),
        interval_words(one["kl_end"], 1),
        interval_words(one["gold_end"]),
        _words(one, "end_minus_tuned"),
        f"{interval_words(one['gold_stopped'])} ({one['stop_step']})",
        f"{one['seeds_below_start']} of {one['seeds']}",
        one.get("verdict", "-"),
    )


def _pair(name: str, one: dict[str, float], arms: dict[str, Any]) -> tuple[str, ...]:
    rule, other = name.split(" less ")
    fixed = f"{other}, {_moved(arms[other])}"
    return rule, _moved(arms[rule]), fixed, interval_words(one)


def _units(found: dict[str, Any]) -> dict[str, str]:
    """What each coefficient does where the proxy's unit is another one."""
    if not found:
        return {}
    head = (
        "setting, at which scale",
        "beta",
        "beta / sigma_R",
        "KL along the run",
        "times scale 1's",
        "KL at the end",
        "times scale 1's",
        "gold at the end",
        "minus scale 1's",
        "gold when stopped",
        "minus scale 1's",
    )
    rows = []
    for name, one in found["arms"].items():
        beside = found["beside_scale_1"].get(name, {})
        rows.append(
            (
                name,
                f"{one['beta']:.3g}",
                f"{one['beta_in_sigma']:.2g}",
                interval_words(one["kl_along"]),
                _words(beside, "kl_along_times"),
                interval_words(one["kl_end"]),
                _words(beside, "kl_end_times"),
                interval_words(one["gold_end"]),
                _words(beside, "gold_end_minus"),
                f"{interval_words(one['gold_stopped'])} ({one['stop_step']})",
                _words(beside, "gold_stopped_minus"),
            )
        )
    repeats = [
        (
            name,
            f"{one['same']} of {one['runs']}",
            f"{one['parted']} of {one['runs']}",
            f"{one['first_step_apart']['earliest']}, {one['first_step_apart']['median']:g}"
            if one["parted"]
            else "-",
            f"{one['gold_end_apart']['mean']:.3f}, {one['gold_end_apart']['largest']:.3f}",
        )
        for name, one in found["repeats"].items()
    ]
    told = (
        "runs that should be the same",
        "the same in every digit",
        "KL more than 1 % apart at some step",
        "first at step: earliest, median",
        "gold at the end apart: mean, largest",
    )
    return {"units": markdown(head, rows), "repeats": markdown(told, repeats)}


def _moved(one: dict[str, float]) -> str:
    return f"{one['beta_start']:.2g} → {one['beta_end']:.2g}"


def _words(one: dict[str, Any], name: str) -> str:
    return interval_words(one[name]) if name in one else "-"
