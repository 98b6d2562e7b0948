"""The name of a part of a weighted proxy in, the name of its metric out, and back.

Beside the golds' (kltune.metrics.gold_names) the one family of metrics that a spec completes.
"""

from __future__ import annotations

from typing import Final

from kltune.spec.golds import GOLD_NAME

_FIRST: Final = "train/part_"
FAMILY: Final = (
    (
        f"{_FIRST}<name>",
        "the part's own",
        "Mean of the part <name> of a weighted task.proxy, before its weight",
    ),
)
"""Name, unit and meaning, as in the registry; once a training step."""


def part_metric(name: str) -> str:
    """Name the metric of the part ``name``."""
    return f"{_FIRST}{name}"


def is_part_metric(metric: str) -> bool:
    """Whether ``metric`` is one that some spec may give rise to."""
    name = metric.removeprefix(_FIRST)
    return metric.startswith(_FIRST) and GOLD_NAME.fullmatch(name) is not None
