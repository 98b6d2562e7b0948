"""Each penalty's loss, done again from the trace, is the trainer's; and closed forms of one token."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from replay_case import traced

from kltune.replay.loss_by_hand import k3, reward_cost, token_parts
from kltune.spec.penalty import Penalty

SEVERAL = {"epochs": 2, "minibatches": 2, "kl": {"clip": 0.05}, "clip_ratio": 0.02}


@pytest.mark.parametrize("penalty", Penalty)
def test_the_sum_over_tokens_is_the_loss_of_every_update(penalty: Penalty) -> None:
    for trainer in ({}, SEVERAL):
        trace, _ = traced(trainer, penalty=penalty, beta=0.5, learning_rate=0.03)
        for update in trace.updates:
            parts = token_parts(trace, update)
            total = sum(float(one.loss.sum()) for one in parts)
            kl = sum(float(one.kl_loss.sum()) for one in parts)
            assert total == pytest.approx(update.loss, abs=2e-6, rel=2e-5)
            assert kl == pytest.approx(update.loss_kl, abs=2e-6, rel=2e-5)
            assert (kl != 0) is penalty.in_loss


@pytest.mark.parametrize(
    "trainer",
    [
        {"algorithm": "dr-grpo", "clip_ratio_max": 1.3, "epochs": 3},
        {"entropy_bonus": 0.1},
        {
            "algorithm": "rloo",
            "importance": "sequence",
            "aggregation": "seq-mean-token-sum",
            "epochs": 3,
            "clip_ratio": 0.05,
        },
    ],
    ids=["dual clip", "entropy", "sequence ratio"],
)
def test_clips_bonus_and_ratios_of_whole_completions_too(trainer: dict[str, object]) -> None:
    trace, _ = traced(trainer, learning_rate=0.05)
    for update in trace.updates:
        total = sum(float(one.loss.sum()) for one in token_parts(trace, update))
        assert total == pytest.approx(update.loss, abs=2e-6, rel=2e-5)


def test_the_kl_paid_in_the_reward_is_price_times_estimator_and_clipped() -> None:
    trace, _ = traced(penalty="k3-reward", beta=0.5)
    completion = trace.completions[0]
    columns = completion.columns
    drawn = np.array(columns["policy"]) - np.array(columns["reference"])
    assert reward_cost(completion, trace.rules) == pytest.approx(0.5 * k3(drawn))
    clipped = reward_cost(completion, {**trace.rules, "kl_clip": 1e-4})
    assert clipped.max() == pytest.approx(0.5e-4)
    assert not reward_cost(completion, {**trace.rules, "penalty": "k3-loss"}).any()


def test_a_token_by_the_closed_form() -> None:
    trace, _ = traced({"epochs": 2}, penalty="wk3-loss", beta=0.5)
    completion = trace.completions[0]
    update = trace.updates[1]
    row = next(one for one in update.rows if one.row == 0)
    part = token_parts(trace, replace(update, rows=(row,)))[0]
    now, old = row.columns["logprob"][1], completion.columns["policy"][1]
    ratio = math.exp(now - old)
    u = now - completion.columns["reference"][1]
    assert part.ratio[1] == pytest.approx(ratio)
    assert part.kl[1] == pytest.approx(ratio * (math.exp(-u) - 1 + u))
    gain = min(
        ratio * completion.columns["advantage"][1],
        min(max(ratio, 0.8), 1.2) * completion.columns["advantage"][1],
    )
    assert part.policy_loss[1] == pytest.approx(-row.weight * gain)
