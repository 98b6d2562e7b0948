"""The name of a gold beside the objective's in, the names of its metrics out, and back.

The one family of metrics that a spec completes; all others are in kltune.metrics.names.
"""

from __future__ import annotations

from typing import Final

from kltune.spec.golds import name_problem

_FIRST: Final = "eval/gold_"
FAMILY: Final = (
    (f"{_FIRST}<name>", "the gold's own", "Mean of the gold <name> of task.golds"),
    (f"{_FIRST}<name>_se", "the gold's own", "Standard error over prompts of the gold <name>"),
)
"""Name, unit and meaning, as in the registry; once an evaluation."""


def gold_metric(name: str) -> str:
    """Name the metric of the gold ``name``; its standard error adds ``_se``."""
    return f"{_FIRST}{name}"


def is_gold_metric(metric: str) -> bool:
    """Whether ``metric`` is one that some spec may give rise to."""
    gold = metric.removeprefix(_FIRST).removesuffix("_se")
    return metric.startswith(_FIRST) and name_problem(gold) is None
