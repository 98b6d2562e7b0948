"""Variances over crossed seeds and prompts, against sums written out and against data with known parts."""

from __future__ import annotations

import numpy as np
import pytest

from kltune.statistics.crossed import mean_spread, pair_spread, pooled_spread


def test_for_two_settings_pooled_is_that_of_the_difference() -> None:
    values = np.random.default_rng(0).normal(size=(4, 2, 7))
    pooled, own = pooled_spread(values), mean_spread(values[:, 0] - values[:, 1])
    assert pooled.variance == pytest.approx(own.variance)
    assert pooled.df == pytest.approx(own.df)


def test_mean_squares_are_those_written_out() -> None:
    values = np.random.default_rng(1).normal(size=(3, 5)) + np.arange(3)[:, None] + np.arange(5)
    mean, rows, columns = values.mean(), values.mean(axis=1), values.mean(axis=0)
    seed = sum(5 * (r - mean) ** 2 for r in rows) / 2
    prompt = sum(3 * (c - mean) ** 2 for c in columns) / 4
    both = sum((values[i, j] - rows[i] - columns[j] + mean) ** 2 for i in range(3) for j in range(5)) / 8  # fmt: skip
    found = mean_spread(values)
    total = seed + prompt - both
    assert found.variance == pytest.approx(total / 15)
    assert found.df == pytest.approx(total**2 / (seed**2 / 2 + prompt**2 / 4 + both**2 / 8))


def test_what_all_settings_share_does_not_count() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(5, 4, 6))
    shared = rng.normal(size=(5, 1, 6)) * 100
    assert pooled_spread(values + shared).variance == pytest.approx(pooled_spread(values).variance)


def test_the_variance_is_right_on_average() -> None:
    rng, draws = np.random.default_rng(3), 2000
    seeds, prompts, seed_sd, prompt_sd, rest_sd = 5, 12, 0.3, 0.4, 0.5
    found, means = [], []
    for _ in range(draws):
        values = (
            rng.normal(0, seed_sd, (seeds, 1))
            + rng.normal(0, prompt_sd, prompts)
            + rng.normal(0, rest_sd, (seeds, prompts))
        )
        found.append(mean_spread(values).variance)
        means.append(values.mean())
    truth = seed_sd**2 / seeds + prompt_sd**2 / prompts + rest_sd**2 / seeds / prompts
    assert np.mean(found) == pytest.approx(truth, rel=0.08), f"{draws} draws"
    assert np.var(means) == pytest.approx(truth, rel=0.12), f"{draws} draws"


def test_a_pair_that_scatters_more_is_judged_by_its_own_scatter_and_a_quieter_one_is_not() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(0, 0.1, (10, 5, 20)) + rng.normal(0, 0.05, (10, 5, 1))
    values[:, 4] += rng.normal(0, 1.0, (10, 1))
    pooled = pooled_spread(values[:, :4])
    wild, is_pooled = pair_spread(values[:, 0] - values[:, 4], pooled)
    assert not is_pooled
    assert wild.variance > pooled.variance
    assert pair_spread(values[:, 0] * 0, pooled) == (pooled, True)
