"""Tables of README.md, from results.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controllers_analysis import COMPARED, Found
from controllers_arms import FIXED, FROM_HIGH, HALF, STAGED, STEADY
from experiment_intervals import told
from experiment_tables import interval_words, markdown

ENOUGH = 4
"""Seeds that a mean in a table needs."""


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The README's tables by name."""
    return {
        "beta": _beta_table(results),
        "tracking": _tracking_table(results),
        "gold": _gold_table(results),
        "transfer": _transfer_table(results["transfer"]),
        "from-high": _from_high_table(results["from_high"]),
        "stages": _stages_table(results["stages"]),
        "cures": _cures_table(results),
        "cures-compared": _compared_table(results["cures"]),
    }


def _words(found: Found, digits: int = 2) -> str:
    """A mean and its interval, where enough seeds have a value."""
    return interval_words(found, digits) if found["num"] >= ENOUGH else "-"


def _digits(found: Found) -> str:
    """Likewise of what spans powers of ten: two digits each."""
    if found["num"] < 2:
        return "-"
    mean, low, high = (f"{found[name]:.2g}" for name in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _from_to(found: Found, ends: Sequence[float]) -> str:
    """A mean with the least and the most of any seed."""
    return f"{found['mean']:.2g} ({ends[0]:.2g}, {ends[1]:.2g})"


def _counted(found: Found) -> str:
    """How many seeds have a value, and where enough do, their mean."""
    return f"{found['num']}, {_words(found, 1)}".removesuffix(", -")


def _starred(found: Found | None, null: float = 0.0, digits: int = 2) -> str:
    """With a star where told apart from ``null``."""
    if found is None or found["num"] < ENOUGH:
        return "-"
    return interval_words(found, digits) + ("*" if told(found, null) != "untold" else "")


def _beta_table(results: Found) -> str:
    head = [
        "setting",
        "gain",
        "beta can rise by at most, times",
        "beta moved by (highest / lowest)",
        "beta at the end / at the start",
        "lowest beta",
        "highest beta (by seed from, to)",
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
                _digits(one["lowest_beta"]),
                _from_to(one["highest_beta"], one["highest_beta_by_seed"]),
                *(_digits(one[key]) for key in ("beta_at_target", "late_beta")),
                inert if has_gain else "-",
            ]
        )
    return markdown(head, rows)


def _tracking_table(results: Found) -> str:
    head = [
        "setting",
        "seeds that reached the target",
        "at step",
        "overshoot: highest KL / target",
        "seeds back under it by the end, at step",
        "beta back at its start, at step",
        "KL / target, last third",
        "KL / target, last three steps",
        "KL in the middle third, times fixed 0.02",
        "KL in the last third, times fixed 0.02",
        "sd of log(KL / target), last third",
        "swings per 10 steps",
        "less those of a fixed beta",
        "runs that swung, steps from the target to the first swing",
        "runs with two swings or more",
    ]
    rows = []
    for name, one in results["settings"].items():
        period = one["period"]
        is_steady = name not in STAGED
        times = results["to_fixed"].get("fixed 0.02", {}).get(name, {})
        rows.append(
            [
                name,
                f"{one['reached']} of {results['seeds']}",
                _words(one["reach"], 1),
                _words(one["overshoot"]) if is_steady else "-",
                _counted(one["back"]) if is_steady else "-",
                "-" if name in FIXED else _words(one["start_again"], 1),
                _words(one["late_kl_over_target"]),
                _words(one["end_kl_over_target"]),
                *(_starred(times.get(key), 1.0) for key in ("mid_kl", "late_kl")),
                _words(one["late_sd"]),
                _words(one["swings"]) if is_steady else "-",
                _starred(results["swings_less_noise"].get(name)),
                _counted(one["first_swing"]) if is_steady else "-",
                period["num"] if is_steady else "-",
            ]
        )
    return markdown(head, rows)


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
    return markdown(head, rows)


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
    return markdown(head, rows)


def _from_high_table(found: Found) -> str:
    head = [
        "setting",
        "beta is down at 0.2 at step: foretold",
        "measured",
        "seeds whose KL reached the target",
        "at step",
        "beta at the end",
        "KL / target, last third",
    ]
    rows = [
        [
            name,
            found[name]["foretold"],
            _words(found[name]["passed"], 1),
            found[name]["reached"],
            _words(found[name]["reach"], 1),
            _digits(found[name]["end_beta"]),
            _words(found[name]["kl_over_target"]),
        ]
        for name in FROM_HIGH
        if name in found
    ]
    return markdown(head, rows)


def _cures_table(results: Found) -> str:
    """Each gain without a cure, with each of the two, and the fixed beta."""
    head = [
        "setting",
        "lowest beta",
        "beta in the last third",
        "KL at its target at step",
        "overshoot: highest KL / target",
        "runs under control by the end, from step",
        "KL / target, last third",
        "rms of log(KL / target), last third",
        "swings per 10 steps",
        "gold at the end",
    ]
    settings = {**results["settings"], **results["cures"]["settings"]}
    order = sorted(results["cures"]["settings"], key=lambda name: settings[name]["gain"])
    plain = {name: f"gain {settings[name]['gain']:g}" for name in order}
    names = dict.fromkeys(one for name in order for one in (plain[name], name))
    rows = [
        [
            name,
            *(_digits(one[key]) for key in ("lowest_beta", "late_beta")),
            _words(one["reach"], 1),
            _words(one["overshoot"]),
            # A mean over those that came in time only would flatter the setting.
            _counted(one["control"])
            if one["control"]["num"] == results["seeds"]
            else one["control"]["num"],
            _words(one["late_kl_over_target"]),
            _words(one["late_rms"]),
            _words(one["swings"]) if name != STEADY else "-",
            interval_words(one["gold_end"]),
        ]
        for name, one in ((name, settings[name]) for name in (*names, STEADY) if name in settings)
    ]
    return markdown(head, rows)


def _less_words(found: Found | None) -> str:
    """A difference; one that is 0 in every seed comes of runs that have no such step, and has no interval."""
    if found is not None and found["mean"] == found["half"] == 0:
        return "no run of either"
    return _starred(found, digits=3)


def _compared_table(found: Found) -> str:
    """The comparisons of the second family."""
    head = [
        "setting",
        "less",
        "rms of log(KL / target), last third",
        "step from which under control",
        "gold at the end",
    ]
    gold = found.get("gold", {})
    near = {**found.get("floor", {}), **found.get("start", {})}
    rows = [
        [
            name,
            other,
            *(
                _less_words(near[name].get(key) if near[name]["less"] == other else None)
                for key in ("late_rms", "control")
            ),
            _less_words(one),
        ]
        for name, others in gold.items()
        for other, one in others.items()
    ]
    return markdown(head, rows)


def _stages_table(found: Found) -> str:
    head = ["target, nats/token", "KL / target, second half of the stage", "beta at its end"]
    rows = [
        [target, interval_words(one["kl_over_target"]), _digits(one["beta"])]
        for target, one in found.items()
    ]
    return markdown(head, rows)
