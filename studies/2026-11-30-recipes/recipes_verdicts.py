"""The two rules by which a setting is judged: the one fixed before the first run, and one made after it came out empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kltune.statistics.arms import MeanInterval

FIRST_RULE = ("holds", "harms", "slows", "inert")
"""Fixed before the first run, all against no KL: gold at the end above; gold below, at the end or when stopped; KL at
the end below; none of these."""
MARGIN = 0.25
"""Gold that a setting may end below k1-reward .15 and still count as keeping it: what the rubric takes off for one
sentence that says nothing. Chosen for that, after the first rule had come out empty."""
VERDICTS = {
    "keeps gold": "gold at the end is less than 0.25 below that of k1-reward 0.15, if at all",
    "less gold": "gold at the end is below that of k1-reward 0.15",
    "can't be told": "the interval excludes neither",
}
"""The second rule. Scatter earns nothing: a wide interval can't be told."""


def first_rule(one: Mapping[str, MeanInterval]) -> str:
    """The verdict by `FIRST_RULE`; differences from no KL, KL on the log."""
    if one["end_minus_none"].high < 0 or one["stopped_minus_none"].high < 0:
        return "harms"
    if one["end_minus_none"].low > 0:
        return "holds"
    return "slows" if one["end_kl_times_none"].high < 0 else "inert"


def verdict(end_minus_tuned: MeanInterval) -> str:
    """The verdict by `VERDICTS`; a loss that is certainly within the margin is none."""
    if end_minus_tuned.low > -MARGIN:
        return "keeps gold"
    return "less gold" if end_minus_tuned.high < 0 else "can't be told"


def counted(found: Mapping[str, Any], rule: str, names: Iterable[str]) -> dict[str, Any]:
    """Which settings have which verdict."""
    by = {name: [arm for arm, one in found.items() if one.get(rule) == name] for name in names}
    return {name: {"count": len(arms), "arms": arms} for name, arms in by.items()}
