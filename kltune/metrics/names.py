"""The registry of metrics: every name that may be recorded, with its unit and meaning.

Names are ``<group>/<what>[_<unit>]``. ``trl`` is TRL's name for the same number, given only
where it means the same; the JSONL record carries the value under both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kltune.metrics.eval_names import EVAL
from kltune.metrics.gold_names import is_gold_metric
from kltune.metrics.part_names import is_part_metric
from kltune.metrics.step_names import STEP

Scope = Literal["step", "eval", "study"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity that may be recorded."""

    name: str
    unit: str
    meaning: str
    scope: Scope
    """``step``: once a training step; ``eval``: once an evaluation; ``study``: on the whole study."""
    trl: str | None = None
    """The name of the same number in TRL's logs."""


_GOLD = "gold"

_STUDY: tuple[tuple[str, str, str], ...] = (
    ("study/trials_ended", "trials", "Trials that have ended, whatever their state"),
    ("study/best_value", _GOLD, "Best value of a feasible trial so far"),
    (
        "study/bookkeeping_frac",
        "share of wall time",
        "Time spent on Optuna, MLflow and files instead of training",
    ),
)

_ALL: tuple[Metric, ...] = (
    *(Metric(name, unit, meaning, "step", trl) for name, unit, meaning, trl in STEP),
    *(Metric(name, unit, meaning, "eval") for name, unit, meaning in EVAL),
    *(Metric(name, unit, meaning, "study") for name, unit, meaning in _STUDY),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
"""Every metric by its name, in the order of the glossary."""


def check_names(names: Iterable[str]) -> None:
    """Raise `ValueError` for any name that neither the registry holds nor a spec's gold or part of a proxy gives rise to."""
    unknown = sorted(
        name
        for name in names
        if name not in METRICS and not is_gold_metric(name) and not is_part_metric(name)
    )
    if unknown:
        raise ValueError(
            f"unregistered metric {', '.join(map(repr, unknown))}: "
            "give it a unit and a meaning in kltune/metrics/names.py"
        )


def trl_names(values: Mapping[str, float]) -> dict[str, float]:
    """Repeat the values that TRL also logs, under TRL's names."""
    return {
        trl: value
        for name, value in values.items()
        if (metric := METRICS.get(name)) is not None and (trl := metric.trl) is not None
    }
