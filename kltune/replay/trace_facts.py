"""A traced step in, the content of trace.json out: what was measured, what follows from it, and the sums.

Everything that is derived can be computed again from what is measured, by the formulas named beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from kltune.metrics.trace import StepTrace
from kltune.replay.checks import Check
from kltune.replay.loss_by_hand import Numbers, k1, k2, k3, log_ratio, reward_cost, token_parts

DERIVED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "completions": {
            "k1": "policy - reference, nats",
            "k2": "k1^2 / 2, nats",
            "k3": "exp(-k1) - 1 + k1, nats",
            "reward_cost": "price_reward x the KL that the token pays in the reward, units of the score",
        },
        "updates": {
            "ratio": "exp(logprob - policy)",
            "kl": "the penalty's KL in the loss, nats; 0 where none is in the loss",
            "policy_loss": "-weight x min(ratio x advantage, clipped ratio x advantage)",
            "kl_loss": "weight x price_loss x kl",
            "entropy_loss": "weight x entropy_bonus x entropy; subtracted",
        },
    }
)
"""Columns that the trace adds, by formula."""


def trace_facts(
    trace: StepTrace,
    metrics: Mapping[str, float],
    checks: Sequence[Check],
    recorded_loss: float | None,
) -> dict[str, Any]:
    """Plain values; ``metrics`` are those of the replayed step, ``recorded_loss`` is the study's own."""
    facts = trace.as_json()
    with np.errstate(all="ignore"):
        for completion, shown in zip(trace.completions, facts["completions"], strict=True):
            drawn = log_ratio(completion)
            shown["derived"] = {
                "k1": _plain(k1(drawn)),
                "k2": _plain(k2(drawn)),
                "k3": _plain(k3(drawn)),
                "reward_cost": _plain(reward_cost(completion, trace.rules)),
            }
        for update, shown in zip(trace.updates, facts["updates"], strict=True):
            for parts, row in zip(token_parts(trace, update), shown["rows"], strict=True):
                row["derived"] = {name: _plain(getattr(parts, name)) for name in DERIVED["updates"]}
    return {
        **facts,
        "derived": {part: dict(columns) for part, columns in DERIVED.items()},
        "metrics": dict(metrics),
        "recorded_loss": recorded_loss,
        "sums": [
            {
                "name": check.name,
                "how": check.how,
                "by_hand": check.by_hand,
                "logged": check.logged,
                "equal": check.is_equal,
            }
            for check in checks
        ],
    }


def _plain(values: Numbers) -> list[float]:
    return [float(value) for value in values]
