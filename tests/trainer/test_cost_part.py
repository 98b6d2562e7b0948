"""The KL's part of the advantages: with the scores' part it is the whole, and it is linear in the cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kltune.trainer.advantage import AdvantageRule, advantages, ppo_advantages, ppo_rewards, whiten
from kltune.trainer.cost_part import cost_part, ppo_cost_part, whitened_part

MASK_NT = torch.arange(5) < torch.tensor([[5], [3], [1], [4], [2], [5], [3], [5]])
ALL_N = torch.ones(8).bool()
CREDITS: list[Any] = ["sequence", "reward-to-go", "length-mean"]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SCORE_N, COST_NT = drawn(8), drawn(8, 5, seed=1).abs()


def rule(algorithm: Any, credit: Any = "sequence", **fields: Any) -> AdvantageRule:
    return AdvantageRule(algorithm, 4, credit, **fields)


@pytest.mark.parametrize("credit", CREDITS)
@pytest.mark.parametrize("algorithm", ["dr-grpo", "rloo"])
def test_without_a_spread_it_is_the_difference_that_the_cost_makes(
    algorithm: str, credit: str
) -> None:
    how = rule(algorithm, credit, pays_own_token=False)
    whole = advantages(SCORE_N, ALL_N, COST_NT, MASK_NT, how).advantage_NT
    free = advantages(SCORE_N, ALL_N, torch.zeros_like(COST_NT), MASK_NT, how).advantage_NT
    torch.testing.assert_close(cost_part(SCORE_N, ALL_N, COST_NT, MASK_NT, how), whole - free)


@pytest.mark.parametrize("credit", CREDITS)
def test_under_grpo_the_rest_is_the_centred_score_over_the_whole_rewards_spread(
    credit: str,
) -> None:
    how = rule("grpo", credit)
    whole = advantages(SCORE_N, ALL_N, COST_NT, MASK_NT, how)
    rest_NT = whole.advantage_NT - cost_part(SCORE_N, ALL_N, COST_NT, MASK_NT, how)
    for group in (slice(0, 4), slice(4, 8)):
        spread = whole.reward_N[group].std() + 1e-4
        centred = (SCORE_N[group] - SCORE_N[group].mean()) / spread
        expected = centred[:, None].expand(4, 5).where(MASK_NT[group], 0.0)
        torch.testing.assert_close(rest_NT[group], expected)


@pytest.mark.parametrize("credit", CREDITS)
def test_under_reinforce_the_rest_is_the_centred_score_over_the_whole_returns_spread(
    credit: str,
) -> None:
    how = rule("reinforce", credit)
    whole = advantages(SCORE_N, ALL_N, COST_NT, MASK_NT, how).advantage_NT
    rest_NT = whole - cost_part(SCORE_N, ALL_N, COST_NT, MASK_NT, how)
    per_token = SCORE_N[:, None].expand(8, 5)[MASK_NT]
    ratio = rest_NT[MASK_NT] / (per_token - per_token.mean())
    torch.testing.assert_close(ratio, ratio[0].expand_as(ratio))
    assert float(ratio[0]) > 0


def test_unscored_completions_and_lone_ones_have_no_part() -> None:
    scored_N = torch.tensor([1, 1, 0, 1, 0, 0, 1, 0]).bool()
    for algorithm in ("grpo", "dr-grpo", "rloo", "reinforce"):
        how = rule(algorithm)
        part_NT = cost_part(SCORE_N.where(scored_N, 0.0), scored_N, COST_NT, MASK_NT, how)
        assert not part_NT[~scored_N].any()
        assert not part_NT[~MASK_NT].any()
        if algorithm != "reinforce":
            assert not part_NT[6].any(), "the only scored one of its group"
    only_N = torch.zeros(8).bool()
    only_N[0] = True
    alone = cost_part(SCORE_N, only_N, COST_NT, MASK_NT, rule("reinforce", "reward-to-go"))
    assert not alone.any()


@pytest.mark.parametrize("is_whitened", [False, True])
def test_under_ppo_the_parts_of_scores_and_costs_add_up(is_whitened: bool) -> None:
    values_NT = drawn(8, 5, seed=2)

    def raw(score_N: Tensor, cost_NT: Tensor, values_NT: Tensor) -> Tensor:
        return ppo_advantages(
            ppo_rewards(score_N, ALL_N, cost_NT, MASK_NT), values_NT, MASK_NT, 0.99, 0.9
        )[0]

    total_NT = raw(SCORE_N, COST_NT, values_NT)
    rest_NT = raw(SCORE_N, torch.zeros_like(COST_NT), values_NT)
    part_NT = ppo_cost_part(COST_NT, MASK_NT, (0.99, 0.9), total_NT if is_whitened else None)
    if not is_whitened:
        torch.testing.assert_close(part_NT + rest_NT, total_NT)
        return
    white_NT = whitened_part(rest_NT, total_NT, MASK_NT)
    torch.testing.assert_close(part_NT + white_NT, whiten(total_NT, MASK_NT))


def test_equal_totals_teach_nothing_and_neither_does_their_part() -> None:
    same_NT = torch.ones(2, 3)
    mask_NT = torch.ones(2, 3).bool()
    assert not whitened_part(drawn(2, 3), same_NT, mask_NT).any()
