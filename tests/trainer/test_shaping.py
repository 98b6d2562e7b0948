"""Z-scores, scale and clip of scores by hand; unscored completions stand aside."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from torch import Tensor

from kltune.spec.algorithm import RewardSpec
from kltune.trainer.advantage import AdvantageRule, advantages
from kltune.trainer.shaping import Moments, Shaped, shape_scores

INITIAL = (2.0, 4.0)


def shaped(values: list[float], running: Moments | None = None, **spec: object) -> Shaped:
    proxy = torch.tensor(values, dtype=torch.float64)
    return shape_scores(proxy, RewardSpec.model_validate(spec), INITIAL, running or Moments())


def close(got: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(got, torch.tensor(expected, dtype=got.dtype))


def test_without_a_rule_the_score_is_the_proxy() -> None:
    result = shaped([1.0, -7.5, 0.1])
    assert result.score_N.tolist() == [1.0, -7.5, 0.1]
    assert (result.factor, result.clipped) == (1.0, 0)


def test_initial_is_a_z_score_by_the_reference() -> None:
    result = shaped([2.0, 6.0, 0.0], normalize="initial")
    close(result.score_N, [0.0, 1.0, -0.5])
    assert result.factor == 0.25


def test_batch_is_a_z_score_by_the_sample_spread_of_the_step() -> None:
    values = [1.0, 2.0, 3.0, 10.0]
    std = statistics.stdev(values)
    result = shaped(values, normalize="batch")
    close(result.score_N, [(v - 4.0) / std for v in values])
    assert result.factor == pytest.approx(1 / std)


def test_running_is_a_z_score_by_all_scores_so_far_the_present_step_included() -> None:
    first = shaped([1.0, 2.0], normalize="running")
    close(first.score_N, [-math.sqrt(0.5), math.sqrt(0.5)])
    second = shaped([5.0, 9.0, 1.5], first.running, normalize="running")
    seen = [1.0, 2.0, 5.0, 9.0, 1.5]
    mean, std = statistics.mean(seen), statistics.stdev(seen)
    close(second.score_N, [(v - mean) / std for v in (5.0, 9.0, 1.5)])
    assert second.factor == pytest.approx(1 / std)
    assert second.running.count == 5


def test_running_moments_are_kept_of_the_raw_proxy_whatever_the_rule() -> None:
    result = shaped([1.0, 3.0], normalize="initial", scale=10.0, clip=0.1)
    assert (result.running.mean, result.running.std) == (2.0, pytest.approx(math.sqrt(2)))


def test_merged_moments_are_those_of_all_values() -> None:
    generator = torch.Generator().manual_seed(0)
    values = 1e6 + torch.randn(101, generator=generator, dtype=torch.float64)
    moments = Moments()
    for piece in values.split([1, 7, 43, 50]):
        moments = moments.merge(piece)
    assert moments.count == 101
    assert moments.mean == pytest.approx(float(values.mean()), rel=1e-14)
    assert moments.std == pytest.approx(float(values.std()), rel=1e-8)
    assert moments.merge(values[:0]) == moments


@pytest.mark.parametrize("normalize", ["batch", "running"])
@pytest.mark.parametrize("values", [[0.1], [0.1] * 7])
def test_a_spread_of_zero_divides_by_one(normalize: str, values: list[float]) -> None:
    result = shaped(values, normalize=normalize, scale=3.0)
    assert (result.score_N == 0).all()
    assert result.factor == 3.0


def test_the_order_is_z_score_then_scale_then_clip() -> None:
    result = shaped([2.0, 6.0, -2.0, 3.0], normalize="initial", scale=2.0, clip=1.5)
    close(result.score_N, [0.0, 1.5, -1.5, 0.5])
    assert result.factor == 0.5
    assert result.clipped == 2


def test_a_score_on_the_clip_is_not_counted() -> None:
    result = shaped([5.0, -5.0, 5.5], clip=5.0)
    close(result.score_N, [5.0, -5.0, 5.0])
    assert result.clipped == 1


def test_the_score_is_clipped_and_the_kl_is_not() -> None:
    # field case A60
    score = shaped([10.0, 0.0], clip=5.0)
    rule = AdvantageRule("rloo", 2, "sequence")
    cost = torch.tensor([[7.0], [0.0]], dtype=torch.float64)
    paid = advantages(score.score_N, score.is_scored_N, cost, torch.ones(2, 1).bool(), rule)
    assert paid.reward_N.tolist() == [-2.0, 0.0]


@pytest.mark.parametrize("normalize", ["none", "initial", "running", "batch"])
def test_an_unscored_completion_takes_part_in_nothing(normalize: str) -> None:
    with_gap = shaped([1.0, math.nan, 9.0, 3.0], normalize=normalize, clip=1.0)
    without = shaped([1.0, 9.0, 3.0], normalize=normalize, clip=1.0)
    assert with_gap.is_scored_N.tolist() == [True, False, True, True]
    assert with_gap.score_N[1] == 0
    torch.testing.assert_close(with_gap.score_N[with_gap.is_scored_N], without.score_N)
    assert (with_gap.factor, with_gap.clipped) == (without.factor, without.clipped)
    assert with_gap.running == without.running


def test_a_step_without_a_score_leaves_everything_as_it_was() -> None:
    before = Moments(3, 1.0, 2.0)
    for normalize in ("none", "initial", "running", "batch"):
        result = shaped([math.nan, math.nan], before, normalize=normalize)
        assert (result.score_N == 0).all()
        assert not result.is_scored_N.any()
        assert result.running == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_keep_the_precision_of_the_proxy(dtype: torch.dtype) -> None:
    proxy = torch.tensor([1.0, 2.0, 5.0], dtype=dtype)
    result = shape_scores(proxy, RewardSpec(normalize="batch", clip=1.0), INITIAL, Moments())
    assert result.score_N.dtype is dtype
