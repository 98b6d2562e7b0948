"""Where the KL lies and how text repeats, by hand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from kltune.trainer.token_profile import (
    correlation,
    position_edges,
    repeated_frac,
    token_profile,
    token_quantiles,
)

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()


def test_a_profile_averages_each_bucket_over_its_valid_tokens_only() -> None:
    kl_NT = torch.tensor([[0.1, 0.2, 0.3, 0.5], [0.3, 0.4, math.nan, 9.0]])
    found = token_profile(kl_NT, MASK, 4)
    assert found.edges == (0, 1, 2, 3, 4)
    assert found.tokens == (2, 2, 1, 1)
    assert found.kl == pytest.approx((0.2, 0.3, 0.3, 0.5))


def test_buckets_cover_every_position_once_and_are_the_same_at_every_step() -> None:
    edges = position_edges(100)
    assert (edges[0], edges[-1], len(edges)) == (0, 100, 33)
    assert {b - a for a, b in itertools.pairwise(edges)} <= {3, 4}
    short = token_profile(torch.ones(2, 4), MASK, 100)
    assert short.edges == edges
    assert sum(short.tokens) == 6


def test_a_bucket_without_tokens_has_no_kl() -> None:
    assert token_profile(torch.ones(2, 4), MASK, 8).kl[4:] == (0.0,) * 4


def test_quantiles_are_those_of_numpy() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0, 10.0], [4.0, 5.0, 99.0, 99.0]])
    assert token_quantiles(values, MASK, (0.0, 0.5, 0.95, 1.0)) == pytest.approx(
        [1.0, 3.5, 8.75, 10.0]
    )


def test_a_quantile_of_broken_tokens_is_not_a_number() -> None:
    values = torch.tensor([[1.0, math.inf, 3.0, 10.0], [4.0, 5.0, 99.0, 99.0]])
    assert all(math.isnan(q) for q in token_quantiles(values, MASK, (0.5, 0.99)))


def test_trigrams_that_a_completion_had_before_are_counted() -> None:
    ids = torch.tensor([[1, 2, 3, 1, 2, 3, 1], [4, 5, 6, 7, 8, 9, 9]])
    mask = torch.ones(2, 7).bool()
    # first: 123 231 312 123 231, two of five seen before; second: none of five
    assert repeated_frac(ids, mask) == pytest.approx(2 / 10)


def test_the_same_trigram_in_two_completions_is_no_repetition_nor_is_padding() -> None:
    ids = torch.tensor([[1, 2, 3, 0, 0, 0, 0], [1, 2, 3, 0, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0]]).bool()
    assert repeated_frac(ids, mask) == 0.0
    assert repeated_frac(ids[:, :2], mask[:, :2]) == 0.0


def test_a_correlation_leaves_out_what_was_not_scored() -> None:
    kl, proxy = torch.tensor([1.0, 2.0, 3.0, 9.0]), torch.tensor([2.0, 4.0, 6.0, math.nan])
    assert correlation(kl, proxy) == pytest.approx(1.0)
    assert math.isnan(correlation(kl, torch.ones(4)))
