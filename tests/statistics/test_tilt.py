from __future__ import annotations

import math

import numpy as np
import pytest

from kltune.statistics.tilt import MIN_EFFECTIVE, beta_grid, samples_needed, tilt

COUNTS = np.array([40, 25, 20, 10, 5])
REWARD = np.array([0.0, 0.3, -0.5, 1.0, 1.7])
GOLD = np.array([0.2, 1.0, 0.0, 0.5, -2.0])


def _enumerated(beta: float) -> tuple[np.ndarray, float]:
    """The policy that maximises E[R] - beta KL, and its KL, by its formula."""
    reference = COUNTS / COUNTS.sum()
    policy = reference * np.exp(REWARD / beta)
    policy /= policy.sum()
    return policy, float((policy * np.log(policy / reference)).sum())


@pytest.mark.parametrize("beta", [0.1, 0.4, 1.0, 5.0])
def test_a_sample_that_is_the_policy_itself_gives_the_enumerated_optimum(beta: float) -> None:
    policy, kl = _enumerated(beta)
    rewards = np.repeat(REWARD, COUNTS)[None]
    found = tilt(rewards, beta)
    assert found.kl_P[0] == pytest.approx(kl, abs=1e-6)
    assert found.mean_P(rewards)[0] == pytest.approx(float(policy @ REWARD), abs=1e-6)
    gold = np.repeat(GOLD, COUNTS)[None]
    assert found.mean_P(gold)[0] == pytest.approx(float(policy @ GOLD), abs=1e-6)


def test_the_enumerated_optimum_is_the_best_of_all_policies_near_it() -> None:
    policy, kl = _enumerated(0.4)
    reference = COUNTS / COUNTS.sum()
    best = float(policy @ REWARD) - 0.4 * kl
    generator = np.random.default_rng(0)
    for _ in range(200):
        other = policy * np.exp(generator.normal(scale=0.1, size=5))
        other /= other.sum()
        worth = float(other @ REWARD) - 0.4 * float((other * np.log(other / reference)).sum())
        assert worth <= best + 1e-12


def test_infinite_beta_is_the_reference() -> None:
    rewards = np.repeat(REWARD, COUNTS)[None]
    found = tilt(rewards, math.inf)
    assert found.kl_P[0] == 0
    assert found.effective_P[0] == pytest.approx(100)
    assert found.mean_P(rewards)[0] == pytest.approx(rewards.mean())


def test_16_samples_that_read_1_of_2_nats_are_cut() -> None:
    rewards = np.random.default_rng(0).normal(size=(2000, 16))
    found = tilt(rewards, 0.5)  # normal rewards: KL = 1 / (2 beta²) = 2 nats
    assert 1.0 < found.kl_P.mean() < 1.25, f"2,000 prompts read {found.kl_P.mean():.2f}, true 2"
    assert not found.is_supported


def test_what_is_kept_reads_within_a_tenth_of_the_truth() -> None:
    rewards = np.random.default_rng(1).normal(size=(400, 128))
    kept = [beta for beta in beta_grid(1.0) if tilt(rewards, beta).is_supported]
    last = min(kept)
    true = 1 / (2 * last**2)
    read = tilt(rewards, last).kl_P.mean()
    assert true > 0.8
    assert read > 0.9 * true, (
        f"400 prompts x 128: {read:.3f} against {true:.3f} at the last point kept"
    )


def test_more_than_one_prompt_in_ten_below_the_limit_cuts_the_point() -> None:
    flat, steep = np.zeros((1, 64)), np.zeros((1, 64))
    steep[0, 0] = 100.0
    assert tilt(np.concatenate([flat] * 9 + [steep]), 1.0).is_supported
    assert not tilt(np.concatenate([flat] * 8 + [steep]), 1.0).is_supported


def test_huge_rewards_neither_overflow_nor_lose_the_best() -> None:
    found = tilt(np.array([[1e6, -1e6, 0.0]]), 1e-3)
    assert found.weights_PN[0].tolist() == [1.0, 0.0, 0.0]
    assert found.kl_P[0] == pytest.approx(math.log(3))


def test_beta_at_or_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        tilt(np.zeros((1, 2)), 0.0)


def test_samples_needed_for_normal_rewards_is_10_e_to_twice_the_kl() -> None:
    assert samples_needed(1.5, 2.0, 1.0) == pytest.approx(MIN_EFFECTIVE * math.exp(3.0))
    with pytest.raises(ValueError, match="above 0"):
        samples_needed(1.0, 1.0, 0.0)
