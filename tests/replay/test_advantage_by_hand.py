"""Rewards, advantages and weights, done again from the trace, are the trainer's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tiny
from replay_case import traced

from kltune.metrics.trace import StepTrace
from kltune.replay.advantage_by_hand import advantages, rewards, scores, weights
from kltune.tasks.protocol import Sample
from kltune.trainer.bank import Bank

COSTLY = {"penalty": "k1-reward", "beta": 2.0, "learning_rate": 0.03}


def assert_agrees(trace: StepTrace) -> None:
    assert scores(trace) == pytest.approx([c.score for c in trace.completions], abs=1e-6)
    assert rewards(trace) == pytest.approx(
        [c.reward for c in trace.completions], abs=1e-5, rel=1e-6
    )
    for own, completion in zip(advantages(trace), trace.completions, strict=True):
        assert own == pytest.approx(np.array(completion.columns["advantage"]), abs=2e-4)
    for update in trace.updates:
        assert weights(trace, update.rows) == pytest.approx([row.weight for row in update.rows])


@pytest.mark.parametrize("algorithm", ["grpo", "dr-grpo", "rloo", "reinforce"])
@pytest.mark.parametrize("credit", ["sequence", "length-mean", "reward-to-go"])
def test_every_algorithm_with_every_credit(algorithm: str, credit: str) -> None:
    trainer = {"algorithm": algorithm, "kl": {"credit": credit}}
    assert_agrees(traced(trainer, **COSTLY)[0])
    assert_agrees(traced(trainer, **{**COSTLY, "penalty": "exact-full"})[0])


@pytest.mark.parametrize("whiten", [True, False])
def test_ppo_from_its_critic(whiten: bool) -> None:
    trainer = {"algorithm": "ppo", "critic": {"whiten": whiten, "gae_lambda": 0.9, "gamma": 0.97}}
    assert_agrees(traced(trainer, **COSTLY)[0])


@pytest.mark.parametrize(
    "aggregation", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "constant"]
)
def test_weights_of_every_aggregation_and_of_part_of_the_rows(aggregation: str) -> None:
    trace, _ = traced({"aggregation": aggregation, "minibatches": 2})
    assert [len(update.rows) for update in trace.updates] == [4, 4]
    assert_agrees(trace)


@pytest.mark.parametrize("normalize", ["none", "initial", "running", "batch"])
def test_shaped_scores(normalize: str) -> None:
    reward = {"normalize": normalize, "scale": 2.0, "clip": 1.0}
    assert_agrees(traced({"reward": reward}, **COSTLY)[0])


@dataclass(frozen=True)
class Choosy:
    """Can't judge completions of an odd number of tokens."""

    name: str = "choosy"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [math.nan if len(s.token_ids) % 2 else float(s.token_ids[0]) for s in samples]


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "reinforce", "ppo"])
def test_an_unscored_completion_takes_part_in_nothing(algorithm: str) -> None:
    trainer: dict[str, Any] = {"algorithm": algorithm, "prompts": 4}
    bank = tiny.bank(1, own_forward=True, **trainer)
    data = tiny.task_data(bank.parts.loaded)
    choosy = type(data)(data.train, data.select, Choosy(), data.gold)
    bank = Bank(bank.parts.loaded, choosy, tiny.settings(**trainer), tiny.MODEL, 1)
    bank.admit(0, 7, tiny.trial(**COSTLY), None)
    _, trace = bank.traced_step(0)
    unscored = [c for c in trace.completions if c.proxy is None]
    assert 0 < len(unscored) < len(trace.completions)
    assert_agrees(trace)
