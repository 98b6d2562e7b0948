"""The second family: a floor under beta, and a start near the beta that the target needs. What was asked: study.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controllers_arms import BY_GAIN, CURES, FLOORED, NEAR, STEADY
from controllers_data import Data
from controllers_run import Floats
from experiment_intervals import at_once, told

from kltune.statistics.arms import at_end

Measured = Mapping[str, Mapping[str, Floats]]
"""Of each setting each measure, by seed."""


def without_floor(name: str) -> str:
    """The setting of the first family that has the same gain, start and target."""
    return name.split(",")[0]


def cured(data: Data, measured: Measured) -> dict[str, Any]:
    """The three questions of study.py; the intervals of each hold at once. Empty where a setting was not run."""
    if not {*CURES, *BY_GAIN, STEADY} <= set(data.runs):
        return {}
    return {
        "floor": _floor(measured),
        "start": _start(measured),
        "gold": _gold(data),
    }


def _floor(measured: Measured) -> dict[str, Any]:
    """A floor less the same gain without: rms of log(KL / target) in the last third; the step from which KL is under control."""
    keys = {"late_rms": "error_rms", "control": "control_by_end"}
    return _less(measured, {name: without_floor(name) for name in FLOORED}, keys)


def _start(measured: Measured) -> dict[str, Any]:
    """A controller from beta .2 less a fixed .2: rms of log(KL / target) in the last third."""
    return _less(measured, dict.fromkeys(NEAR, STEADY), {"late_rms": "error_rms"})


def _gold(data: Data) -> dict[str, Any]:
    """Gold at the end, by setting and what it is compared with: a floor less the same gain without, every setting less a fixed .2."""
    end = {name: at_end(gold) for name, gold in data.gold.items()}
    pairs = [(name, without_floor(name)) for name in FLOORED] + [(name, STEADY) for name in CURES]
    found: dict[str, Any] = {name: {} for name in CURES}
    for name, other in pairs:
        found[name][other] = _with_verdict(at_once(end[name] - end[other], len(pairs)))
    return found


def _less(measured: Measured, others: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, Any]:
    """Each setting less its other, seed by seed, in every measure; all of them at once."""
    count = len(others) * len(keys)
    found: dict[str, Any] = {}
    for name, other in others.items():
        found[name] = {"less": other}
        for word, key in keys.items():
            less = measured[name][key] - measured[other][key]
            found[name][word] = _with_verdict(at_once(less, count))
    return found


def _with_verdict(found: Mapping[str, Any]) -> dict[str, Any]:
    return {**found, "told": told(found)}
