"""Advantages by hand, by brute force, and their gradient by enumeration of a two-token model."""

from __future__ import annotations

import itertools
import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from kltune.spec.algorithm import Algorithm, Credit
from kltune.trainer.advantage import (
    AdvantageRule,
    Advantages,
    advantages,
    ppo_advantages,
    ppo_rewards,
    whiten,
)

GROUPED: tuple[Algorithm, ...] = ("grpo", "dr-grpo", "rloo")
CRITIC_FREE: tuple[Algorithm, ...] = (*GROUPED, "reinforce")
CREDITS: tuple[Credit, ...] = get_args(Credit)


def f64(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def of_scores(
    scores: Tensor, algorithm: Algorithm, group_size: int, scored: Tensor | None = None
) -> Advantages:
    """One token each, nothing paid."""
    mask = torch.ones(len(scores), 1).bool()
    scored = mask[:, 0] if scored is None else scored
    rule = AdvantageRule(algorithm, group_size, "sequence")
    return advantages(scores, scored, torch.zeros_like(scores)[:, None], mask, rule)


def plain(rewards: Tensor, group_size: int) -> Tensor:
    """The formula, written out: (r - mean) / (std with n - 1 + 1e-4)."""
    out = []
    for group in rewards.tolist():
        mean = sum(group) / group_size
        std = math.sqrt(sum((r - mean) ** 2 for r in group) / (group_size - 1))
        out += [(r - mean) / (std + 1e-4) for r in group]
    return torch.tensor(out, dtype=rewards.dtype)


def ragged(rows: int = 8, tokens: int = 5, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, costs with NaN behind the mask, mask."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, tokens + 1, (rows,), generator=generator)
    mask = torch.arange(tokens)[None] < lengths[:, None]
    cost = 0.3 * torch.randn(rows, tokens, generator=generator, dtype=torch.float64)
    scores = torch.randn(rows, generator=generator, dtype=torch.float64)
    return scores, cost.where(mask, math.nan), mask


def test_three_of_eight_correct_gives_the_known_advantages() -> None:
    # field case A37
    scores = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    advantage = of_scores(scores, "grpo", 8).advantage_NT[:, 0]
    # The published figures leave the 1e-4 beside the std out.
    torch.testing.assert_close(advantage[:3], torch.full((3,), 1.2076), rtol=3e-4, atol=0)
    torch.testing.assert_close(advantage[3:], torch.full((5,), -0.7246), rtol=3e-4, atol=0)
    torch.testing.assert_close(advantage, plain(scores.view(1, 8), 8))
    rloo = of_scores(scores, "rloo", 8).advantage_NT[:, 0]
    torch.testing.assert_close(rloo, torch.tensor([5 / 7] * 3 + [-3 / 7] * 5))


def test_rloo_subtracts_the_mean_of_the_others_without_a_spread() -> None:
    # field case A37
    advantage = of_scores(f64(1.0, 0.0, 0.0, 2.0), "rloo", 4).advantage_NT[:, 0]
    torch.testing.assert_close(advantage, f64(1 / 3, -1.0, -1.0, 5 / 3))


def test_dr_grpo_subtracts_the_mean_of_its_own_group_only() -> None:
    advantage = of_scores(f64(1.0, 0.0, 0.0, 2.0, 10.0, 12.0, 10.0, 10.0), "dr-grpo", 4)
    expected = f64(0.25, -0.75, -0.75, 1.25, -0.5, 1.5, -0.5, -0.5)
    torch.testing.assert_close(advantage.advantage_NT[:, 0], expected)


def test_reinforce_whitens_over_the_tokens_of_the_batch() -> None:
    # lengths 3 and 1: token values 2, 2, 2, 6 with mean 3 and variance 4 (n - 1)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    rule = AdvantageRule("reinforce", 2, "sequence")
    result = advantages(f64(2.0, 6.0), torch.ones(2).bool(), torch.zeros(2, 3), mask, rule)
    torch.testing.assert_close(result.advantage_NT, f64([-0.5, -0.5, -0.5], [1.5, 0.0, 0.0]))
    assert result.zero_group_frac == 0.0


def test_the_old_group_advantages_are_kept_to_the_last_bit() -> None:
    for seed, group_size in itertools.product(range(20), (2, 4, 7, 8, 16)):
        generator = torch.Generator().manual_seed(seed)
        scores = 10 * torch.rand(6 * group_size, generator=generator)
        cost = torch.randn(len(scores), 5, generator=generator)
        mask = torch.ones(len(scores), 5).bool()
        for price in (0.0, 0.1):
            rule = AdvantageRule("grpo", group_size, "sequence")
            new = advantages(scores, mask[:, 0], price * cost, mask, rule)
            reward_PG = (scores - (price * cost).sum(dim=-1)).view(-1, group_size)
            std_P = torch.std(reward_PG, dim=-1, correction=1)
            centred_PG = reward_PG - reward_PG.mean(dim=-1, keepdim=True)
            old_N = (centred_PG / (std_P[:, None] + 1e-4)).flatten()
            assert torch.equal(new.advantage_NT, old_N[:, None].expand(-1, 5))


@pytest.mark.parametrize("algorithm", CRITIC_FREE)
@pytest.mark.parametrize("credit", CREDITS)
def test_equal_rewards_give_exactly_zero_even_where_their_mean_is_rounded(
    algorithm: Algorithm, credit: Credit
) -> None:
    # field case A35
    values = torch.rand(400, generator=torch.Generator().manual_seed(0)) * 10
    groups = values[:, None].expand(-1, 7)
    assert (groups.mean(dim=1) != values).any(), "the test sees nothing without a rounded mean"
    for batch in groups.split(1 if algorithm == "reinforce" else 400):
        scores = batch.reshape(-1)
        mask = torch.ones(len(scores), 3).bool()
        rule = AdvantageRule(algorithm, 7, credit)
        result = advantages(scores, mask[:, 0], torch.zeros(len(scores), 3), mask, rule)
        assert (result.advantage_NT == 0).all()
        assert result.zero_group_frac == 1.0


def test_groups_of_equal_rewards_are_counted() -> None:
    half = f64(1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0)
    for algorithm in GROUPED:
        assert of_scores(half, algorithm, 4).zero_group_frac == 0.5
    assert of_scores(half, "reinforce", 4).zero_group_frac == 0.0


@pytest.mark.parametrize(("group_size", "share"), [(2, 0.625), (4, 0.3203), (8, 0.1001)])
def test_the_expected_share_of_equal_groups_of_a_rare_success(
    group_size: int, share: float
) -> None:
    # field case A35
    groups = f64(*itertools.product((0.0, 1.0), repeat=group_size))
    weight = 0.25 ** groups.sum(1) * 0.75 ** (group_size - groups.sum(1))
    parts = [of_scores(group, "grpo", group_size).zero_group_frac for group in groups]
    assert float((weight * f64(*parts)).sum()) == pytest.approx(share, abs=6e-5)


def test_the_kl_is_paid_before_the_group_is_normalised() -> None:
    rule = AdvantageRule("grpo", 4, "sequence")
    cost, mask = f64([0.0], [0.1], [0.2], [0.5]), torch.ones(4, 1).bool()
    result = advantages(torch.ones(4).double(), mask[:, 0], cost, mask, rule)
    torch.testing.assert_close(result.reward_N, f64(1.0, 0.9, 0.8, 0.5))
    torch.testing.assert_close(result.advantage_NT[:, 0], plain(result.reward_N.view(1, 4), 4))
    assert float(result.advantage_NT.std()) == pytest.approx(1, abs=1e-3)  # unlike the KL's 0.2
    assert result.advantage_NT[0] > result.advantage_NT[3], "more KL is worth less"


def brute_force(
    scores: Tensor, scored: Tensor, cost: Tensor, mask: Tensor, rule: AdvantageRule
) -> Tensor:
    """Position by position, row by row, with Python's own sums; reinforce apart."""
    rows, tokens = mask.shape
    out = torch.zeros(rows, tokens, dtype=torch.float64)
    costs = [[float(cost[n, j]) if mask[n, j] else 0.0 for j in range(tokens)] for n in range(rows)]
    lengths = mask.sum(1).tolist()
    whole = [
        float(scores[n]) - sum(costs[n]) / (lengths[n] if rule.credit == "length-mean" else 1)
        for n in range(rows)
    ]
    for n, t in mask.nonzero().tolist():
        first = n - n % rule.group_size
        group = [m for m in range(first, first + rule.group_size) if scored[m]]
        if not scored[n] or len(group) < 2:
            continue
        from_t = t if rule.pays_own_token else t + 1
        at_t = {m: whole[m] for m in group}
        if rule.credit == "reward-to-go":
            at_t = {m: float(scores[m]) - sum(costs[m][from_t:]) for m in group}
        others = [at_t[m] for m in group if rule.algorithm != "rloo" or m != n]
        out[n, t] = at_t[n] - sum(others) / len(others)
        if rule.algorithm == "grpo":
            mean = sum(whole[m] for m in group) / len(group)
            variance = sum((whole[m] - mean) ** 2 for m in group) / (len(group) - 1)
            out[n, t] /= math.sqrt(variance) + 1e-4
    return out


@pytest.mark.parametrize("algorithm", GROUPED)
@pytest.mark.parametrize("credit", CREDITS)
@pytest.mark.parametrize("pays_own_token", [True, False])
@pytest.mark.parametrize("gaps", [(), (1,), (0, 1, 2), (0, 1, 2, 3)])
def test_every_token_is_compared_with_its_scored_siblings_at_the_same_place(
    algorithm: Algorithm, credit: Credit, pays_own_token: bool, gaps: tuple[int, ...]
) -> None:
    scores, cost, mask = ragged()
    scored = torch.ones(8).bool()
    scored[list(gaps)] = False
    rule = AdvantageRule(algorithm, 4, credit, pays_own_token)
    result = advantages(scores.where(scored, 0.0), scored, cost, mask, rule)
    expected = brute_force(scores, scored, cost, mask, rule)
    torch.testing.assert_close(result.advantage_NT, expected, rtol=1e-10, atol=1e-12)
    assert (result.advantage_NT[~mask] == 0).all()
    assert (result.reward_N[~scored] == 0).all()
    assert result.zero_group_frac == (0.5 if len(gaps) == 3 else 0.0)


@pytest.mark.parametrize("algorithm", CRITIC_FREE)
def test_an_unscored_completion_moves_nobody(algorithm: Algorithm) -> None:
    scored = torch.tensor([True, True, False, True])
    three = of_scores(f64(1.0, 2.0, 6.0), algorithm, 3)
    for nonsense in (0.0, 1e6, math.nan):
        four = of_scores(f64(1.0, 2.0, nonsense, 6.0), algorithm, 4, scored)
        torch.testing.assert_close(four.advantage_NT[scored], three.advantage_NT)
        assert four.advantage_NT[2] == 0


@pytest.mark.parametrize("algorithm", CRITIC_FREE)
def test_a_single_scored_completion_teaches_nothing(algorithm: Algorithm) -> None:
    result = of_scores(f64(3.0, 0.0), algorithm, 2, torch.tensor([True, False]))
    assert (result.advantage_NT == 0).all()
    assert result.zero_group_frac == 1.0
    nothing = of_scores(f64(0.0, 0.0), algorithm, 2, torch.tensor([False, False]))
    assert (nothing.advantage_NT == 0).all()
    assert nothing.zero_group_frac == 0.0


@pytest.mark.parametrize("algorithm", CRITIC_FREE)
@pytest.mark.parametrize("credit", CREDITS)
def test_a_non_finite_kl_in_the_reward_shows(algorithm: Algorithm, credit: Credit) -> None:
    cost, mask = torch.zeros(4, 2), torch.ones(4, 2).bool()
    cost[0, 1] = math.nan
    rule = AdvantageRule(algorithm, 4, credit)
    result = advantages(torch.ones(4), mask[:, 0], cost, mask, rule)
    assert not torch.isfinite(result.advantage_NT).any()


def test_ppo_has_no_group_to_compare_with() -> None:
    with pytest.raises(ValueError, match="critic"):
        of_scores(f64(1.0, 2.0), "ppo", 2)


def test_the_score_lies_on_the_last_valid_token() -> None:
    # field case A26
    cost, mask = f64([0.05, 0.05, 0.05, 9.0]), torch.tensor([[True, True, True, False]])
    reward = ppo_rewards(f64(2.0), torch.tensor([True]), cost, mask)
    torch.testing.assert_close(reward, f64([-0.05, -0.05, 1.95, 0.0]))
    full = ppo_rewards(f64(2.0), torch.tensor([True]), cost, torch.ones(1, 4).bool())
    torch.testing.assert_close(full, f64([-0.05, -0.05, -0.05, -7.0]))
    unscored = ppo_rewards(f64(math.nan), torch.tensor([False]), cost, mask)
    assert (unscored == 0).all()


def critic_case() -> tuple[Tensor, Tensor, Tensor]:
    scores, cost, mask = ragged(seed=3)
    reward = ppo_rewards(scores, torch.ones(8).bool(), cost, mask)
    values = torch.randn(8, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return reward.where(mask, math.nan), values.where(mask, math.nan), mask


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.8), (0.99, 0.0), (1.0, 1.0)])
def test_generalised_advantages_are_the_discounted_sum_of_surprises(
    gamma: float, lam: float
) -> None:
    reward, values, mask = critic_case()
    advantage, returns = ppo_advantages(reward, values.requires_grad_(True), mask, gamma, lam)
    assert not advantage.requires_grad
    assert not returns.requires_grad
    for n, length in enumerate(mask.sum(1).tolist()):
        r, v = reward[n].tolist(), [*values[n, :length].tolist(), 0.0]
        surprise = [r[t] + gamma * v[t + 1] - v[t] for t in range(length)]
        for t in range(length):
            naive = sum((gamma * lam) ** (j - t) * surprise[j] for j in range(t, length))
            assert float(advantage[n, t]) == pytest.approx(naive, rel=1e-12, abs=1e-12)
            assert float(returns[n, t]) == pytest.approx(naive + v[t], rel=1e-12, abs=1e-12)
            if (gamma, lam) == (1.0, 1.0):
                assert float(returns[n, t]) == pytest.approx(sum(r[t:length]), abs=1e-12)
    assert (advantage[~mask] == 0).all()
    assert (returns[~mask] == 0).all()


def test_whitening_is_by_the_sample_spread_and_skips_fewer_than_two_values() -> None:
    # field case A51
    mask = torch.tensor([[True, True, True, False]])
    torch.testing.assert_close(
        whiten(f64([1.0, 2.0, 3.0, math.nan]), mask), f64([-1.0, 0.0, 1.0, 0.0])
    )
    one = torch.tensor([[False, True]])
    assert whiten(f64([7.0, 5.0]), one).tolist() == [[0.0, 5.0]]
    assert whiten(f64([7.0, 5.0]), torch.zeros(1, 2).bool()).tolist() == [[0.0, 0.0]]
    same = torch.full((1, 7), 0.1)
    assert (whiten(same, torch.ones(1, 7).bool()) == 0).all()
