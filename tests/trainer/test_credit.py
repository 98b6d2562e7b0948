from __future__ import annotations

from typing import Any

import pytest
import tiny
from oracle import push, recorded_bank

from kltune.metrics.record import StepMetrics
from kltune.spec.penalty import Penalty
from kltune.trainer.bank import Bank
from kltune.trainer.batch import Learned
from kltune.trainer.update import learn


def step(penalty: str, beta: float = 0.3, **trainer: object) -> StepMetrics:
    bank, _, _ = recorded_bank(1, **trainer)
    bank.admit(0, 0, tiny.trial(beta=beta, penalty=penalty, seed=3), None)
    push(bank, 0)
    return bank.train_step()[0]


@pytest.mark.parametrize("penalty", [Penalty.K1_REWARD, Penalty.K3_LOSS, Penalty.EXACT_FULL])
def test_a_clip_of_the_kl_is_counted_and_changes_what_is_paid(penalty: Penalty) -> None:
    free, loose, tight = (step(penalty, kl={"clip": clip}) for clip in (None, 1e3, 0.05))
    assert (
        free.values["train/penalty_clipped_frac"] == loose.values["train/penalty_clipped_frac"] == 0
    )
    assert free.values["train/loss"] == loose.values["train/loss"]
    assert tight.values["train/penalty_clipped_frac"] > 0.1
    assert tight.values["train/loss"] != free.values["train/loss"]
    assert tight.kl_token == free.kl_token, "the monitor is never clipped"


def test_a_kl_in_the_reward_is_paid_after_the_scores_clip() -> None:
    # field case A60: clip(score) - KL, never clip(score - KL)
    clipped = step("k1-reward", beta=5.0, reward={"clip": 0.01})
    assert abs(clipped.values["train/reward_mean"]) > 0.01
    assert clipped.values["train/score_clipped_frac"] > 0


class Silent(tiny.CountWord):
    """Can't score the first completion of each group."""

    def __call__(self, samples: Any) -> list[float]:
        scores = super().__call__(samples)
        return [float("nan") if i % 4 == 0 else s for i, s in enumerate(scores)]


@pytest.mark.parametrize("algorithm", ["grpo", "dr-grpo", "rloo", "reinforce", "ppo"])
def test_an_unscorable_completion_leaves_the_baseline_and_is_counted(algorithm: str) -> None:
    bank, proxy, _ = recorded_bank(1, algorithm=algorithm)
    proxy.inner = Silent("w3")
    bank.admit(0, 0, tiny.trial(beta=0.3, penalty="k1-reward", seed=3), None)
    push(bank, 0)
    learned = _learned(bank)
    worth = learned.credits[0].advantages
    assert not worth.advantage_NT[::4].any()
    assert worth.advantage_NT[1:4].any()
    assert not worth.reward_N[::4].any()
    (metrics,) = bank.train_step()
    assert metrics.is_finite
    assert metrics.values["train/unscored_frac"] == 0.25
    scored = [s for s in Silent("w3")(proxy.calls[-1]) if s == s]
    assert metrics.values["train/proxy_mean"] == pytest.approx(sum(scored) / len(scored))


def _learned(bank: Bank) -> Learned:
    batch = tiny.next_batch(bank)
    before = bank.parts.stack.flat_KP.clone()
    learned = learn(bank.parts, batch)
    bank.parts.stack.flat_KP.copy_(before)
    return learned
