"""trace.json alone is enough: loss, KL and advantages are computed from it in plain NumPy here."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from replay_case import traced

from kltune.metrics.jsonl import encode
from kltune.replay.checks import check_trace
from kltune.replay.trace_facts import DERIVED, trace_facts


def as_file(trainer: dict[str, Any] | None = None, **setting: Any) -> dict[str, Any]:
    trace, metrics = traced(trainer, **setting)
    facts = trace_facts(trace, metrics, check_trace(trace, metrics), metrics["train/loss"])
    return json.loads(encode(facts), parse_constant=pytest.fail)


def table(file: dict[str, Any], name: str) -> np.ndarray:
    """A column as ``[N, T]``, NaN where masked."""
    rows = file["completions"]
    found = np.full((len(rows), len(rows[0]["mask"])), np.nan)
    for n, row in enumerate(rows):
        found[n, np.array(row["mask"], dtype=bool)] = row["columns"][name]
    return found


def test_grpo_with_a_kl_in_the_loss_from_the_file_alone() -> None:
    file = as_file(penalty="k2-loss", beta=1.0)
    policy, reference = table(file, "policy"), table(file, "reference")
    k1, mask = policy - reference, ~np.isnan(policy)
    metrics = file["metrics"]
    assert np.nanmean(table(file, "exact_kl")) == pytest.approx(metrics["kl/exact_token"], rel=1e-5)
    per_sequence = np.nansum(table(file, "exact_kl"), axis=1).mean()
    assert per_sequence == pytest.approx(metrics["kl/exact_seq"], rel=1e-5)
    k3 = np.exp(-k1) - 1 + k1
    assert np.nanmean(k3) == pytest.approx(metrics["kl/k3_token"], rel=1e-4)

    score = np.array([row["proxy"] for row in file["completions"]])
    group = score.reshape(-1, file["rules"]["group_size"])
    spread = group.std(axis=1, ddof=1, keepdims=True) + 1e-4
    advantage = ((group - group.mean(axis=1, keepdims=True)) / spread).reshape(-1, 1)
    traced_advantage = table(file, "advantage")
    broadcast = np.broadcast_to(advantage, policy.shape)
    assert traced_advantage[mask] == pytest.approx(broadcast[mask], abs=1e-4)

    loss = -(traced_advantage - 0.0)[mask].mean()
    penalty = file["rules"]["price_loss"] * (k1**2 / 2)[mask].mean()
    assert loss == pytest.approx(metrics["train/loss_policy"], abs=1e-6)
    assert penalty == pytest.approx(metrics["train/loss_kl"], abs=1e-7)
    assert loss + penalty == pytest.approx(file["recorded_loss"], abs=1e-6)


def test_rloo_with_the_kl_in_the_reward_from_the_file_alone() -> None:
    file = as_file({"algorithm": "rloo"}, penalty="k1-reward", beta=2.0)
    policy = table(file, "policy")
    paid = np.nansum(policy - table(file, "reference"), axis=1) * file["rules"]["price_reward"]
    reward = np.array([row["score"] for row in file["completions"]]) - paid
    assert reward == pytest.approx([row["reward"] for row in file["completions"]], abs=1e-5)
    group = reward.reshape(-1, file["rules"]["group_size"])
    others = (group.sum(axis=1, keepdims=True) - group) / (group.shape[1] - 1)
    advantage = (group - others).reshape(-1)
    assert table(file, "advantage")[:, 0] == pytest.approx(advantage, abs=1e-5)
    mask = ~np.isnan(policy)
    loss = -np.nansum(table(file, "advantage"), axis=1).mean()
    assert mask.sum() == file["metrics"]["tokens/step"]
    assert loss == pytest.approx(file["metrics"]["train/loss"], abs=1e-5)


def test_later_updates_have_their_own_log_probs_and_ratios() -> None:
    file = as_file({"epochs": 2, "minibatches": 2}, learning_rate=0.05)
    assert len(file["updates"]) == 4
    ratios = [np.concatenate([r["derived"]["ratio"] for r in u["rows"]]) for u in file["updates"]]
    assert ratios[0] == pytest.approx(1.0, abs=1e-6)
    assert np.abs(ratios[3] - 1).max() > 1e-3
    for update in file["updates"]:
        parts = (row["derived"] for row in update["rows"])
        total = sum(
            sum(p["policy_loss"]) + sum(p["kl_loss"]) - sum(p["entropy_loss"]) for p in parts
        )
        assert total == pytest.approx(update["loss"], abs=2e-6)
    first_pass = sorted(row["row"] for update in file["updates"][:2] for row in update["rows"])
    assert first_pass == list(range(8))


def test_every_column_is_explained_in_the_file() -> None:
    file = as_file({"algorithm": "ppo", "entropy_bonus": 0.01}, penalty="topk-loss", beta=1.0)
    completion, row = file["completions"][0], file["updates"][0]["rows"][0]
    assert completion["columns"].keys() <= file["columns"]["completions"].keys()
    assert row["columns"].keys() <= file["columns"]["updates"].keys()
    assert completion["derived"].keys() == DERIVED["completions"].keys()
    assert row["derived"].keys() == DERIVED["updates"].keys()
    assert all(one["equal"] for one in file["sums"])
    assert sum(completion["mask"]) == len(completion["token_texts"])
    assert len(completion["completion_ids"]) == len(completion["mask"])
