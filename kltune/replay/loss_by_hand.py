"""A traced update in, each token's part of its loss out: plain arithmetic in float64, no trainer.

The formulas are those of kltune.trainer.loss and kltune.trainer.kl, written a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kltune.metrics.trace import Columns, StepTrace, TracedCompletion, TracedRow, TracedUpdate
from kltune.spec.penalty import Penalty

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenParts:
    """One completion in an update, per valid token; the parts sum to the update's loss over all rows."""

    ratio: Numbers
    """exp(logprob - policy): of the policy now to the one that drew the token."""
    kl: Numbers
    """The penalty's KL in the loss, nats, clipped where the spec says so; 0 where none is in the loss."""
    policy_loss: Numbers
    """-weight x min(ratio x advantage, clipped ratio x advantage)."""
    kl_loss: Numbers
    """weight x price_loss x kl."""
    entropy_loss: Numbers
    """weight x entropy_bonus x entropy; subtracted."""

    @property
    def loss(self) -> Numbers:
        """What the token adds to the loss."""
        return self.policy_loss + self.kl_loss - self.entropy_loss


def k1(log_ratio: Numbers) -> Numbers:
    """Policy minus reference: signed."""
    return log_ratio


def k2(log_ratio: Numbers) -> Numbers:
    """Half the square."""
    return log_ratio**2 / 2


def k3(log_ratio: Numbers) -> Numbers:
    """exp(-u) - 1 + u: never negative."""
    return np.expm1(-log_ratio) + log_ratio


def column(columns: Columns, name: str) -> Numbers:
    """A column as an array."""
    return np.asarray(columns[name], dtype=np.float64)


def log_ratio(completion: TracedCompletion) -> Numbers:
    """Policy at rollout minus reference, per valid token, nats."""
    return column(completion.columns, "policy") - column(completion.columns, "reference")


def reward_cost(completion: TracedCompletion, rules: Mapping[str, Any]) -> Numbers:
    """The KL that each token pays in the reward, in units of the score; 0 where none is paid there."""
    penalty, price = rules["penalty"], float(rules["price_reward"])
    drawn = log_ratio(completion)
    if penalty is None or price == 0 or not Penalty(penalty).in_reward:
        return np.zeros_like(drawn)
    match Penalty(penalty):
        case Penalty.K1_REWARD:
            paid = k1(drawn)
        case Penalty.K2_REWARD:
            paid = k2(drawn)
        case Penalty.K3_REWARD:
            paid = k3(drawn)
        case Penalty.ABS_REWARD:
            paid = np.abs(drawn)
        case _:
            paid = column(completion.columns, "exact_kl")
    return price * _clipped(paid, rules["kl_clip"])


def token_parts(trace: StepTrace, update: TracedUpdate) -> list[TokenParts]:
    """One for each row of the update, in its order."""
    return [_row_parts(trace, row) for row in update.rows]


def _row_parts(trace: StepTrace, row: TracedRow) -> TokenParts:
    rules, completion = trace.rules, trace.completions[row.row]
    now = column(row.columns, "logprob")
    moved = now - column(completion.columns, "policy")
    ratio = np.exp(moved)
    kl = _loss_kl(row, completion, rules, ratio)
    entropy = np.zeros_like(now)
    if rules["entropy_bonus"]:
        entropy = rules["entropy_bonus"] * column(row.columns, "entropy")
    return TokenParts(
        ratio=ratio,
        kl=kl,
        policy_loss=-row.weight * _gain(moved, column(completion.columns, "advantage"), rules),
        kl_loss=row.weight * rules["price_loss"] * kl,
        entropy_loss=row.weight * entropy,
    )


def _gain(moved: Numbers, advantage: Numbers, rules: Mapping[str, Any]) -> Numbers:
    """PPO's pessimistic gain of each token; under a ratio of whole completions an equal share of the completion's."""
    share = 1.0
    if rules["importance"] == "sequence":
        moved = np.full_like(moved, moved.sum())
        share = 1.0 / max(1, len(moved))
    ratio = np.exp(moved)
    free = ratio * advantage
    if rules["clip_max"] is not None:
        free = np.minimum(ratio, rules["clip_max"]) * advantage
    clipped = np.clip(ratio, 1 - rules["clip_low"], 1 + rules["clip_high"]) * advantage
    return share * np.minimum(free, clipped)


def _loss_kl(
    row: TracedRow, completion: TracedCompletion, rules: Mapping[str, Any], ratio: Numbers
) -> Numbers:
    penalty = rules["penalty"]
    if penalty is None or rules["price_loss"] == 0 or not Penalty(penalty).in_loss:
        return np.zeros_like(ratio)
    now = column(row.columns, "logprob") - column(completion.columns, "reference")
    match Penalty(penalty):
        case Penalty.EXACT_LOSS | Penalty.EXACT_FULL:
            found = column(row.columns, "exact_kl")
        case Penalty.FORWARD_LOSS:
            found = column(row.columns, "forward_kl")
        case Penalty.JEFFREYS_LOSS:
            found = column(row.columns, "exact_kl") + column(row.columns, "forward_kl")
        case Penalty.TOPK_LOSS:
            is_tail = column(row.columns, "in_top_k") == 0
            found = column(row.columns, "top_k_kl") + np.where(is_tail, ratio * k1(now), 0.0)
        case other:
            found = _sampled_kl(other, now, ratio)
    return _clipped(found, rules["kl_clip"])


def _sampled_kl(penalty: Penalty, now: Numbers, ratio: Numbers) -> Numbers:
    match penalty:
        case Penalty.K1_LOSS:
            return k1(now)
        case Penalty.WK1_LOSS:
            return ratio * k1(now)
        case Penalty.K2_LOSS:
            return ratio * k2(now)
        case Penalty.WK3_LOSS:
            return ratio * k3(now)
        case Penalty.ABS_LOSS:
            return np.abs(now)
        case _:  # k3-loss, and k3plus-loss, whose value is the same
            return k3(now)


def _clipped(values: Numbers, limit: float | None) -> Numbers:
    return values if limit is None else np.clip(values, -limit, limit)
