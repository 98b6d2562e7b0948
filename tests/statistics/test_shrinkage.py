"""Shrinkage never passes the mean, and lowers the total error."""

from __future__ import annotations

import numpy as np
import pytest

from kltune.statistics.shrinkage import shrink


def test_james_stein_by_hand() -> None:
    means = np.array([0.0, 1.0, 2.0, 5.0])
    found = shrink(means, variance=1.0, df=8)
    share = (4 - 3) * 1.0 * 8 / 10 / 14.0
    assert found.share == pytest.approx(share)
    assert found.values == pytest.approx([2 + (1 - share) * (m - 2) for m in means])


def test_settings_that_differ_by_noise_alone_become_the_mean_and_never_change_sides() -> None:
    found = shrink(np.array([1.0, 1.1, 0.9, 1.05, 0.95]), variance=1.0, df=20)
    assert found.share == 1
    assert found.values == pytest.approx([1.0] * 5)
    assert shrink(np.array([1.0, 1.1]), 1.0, 5).values == pytest.approx([1.05, 1.05])
    assert shrink(np.ones(3), 0.0, 5).values == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_total_error_is_lower_than_that_of_the_plain_means(spread: float) -> None:
    rng, draws = np.random.default_rng(5), 4000
    truth = spread * rng.normal(size=6)
    plain = shrunk = 0.0
    for _ in range(draws):
        means = truth + rng.normal(size=6)
        estimate = rng.chisquare(12) / 12
        plain += float(((means - truth) ** 2).sum())
        shrunk += float(((np.array(shrink(means, estimate, 12).values) - truth) ** 2).sum())
    assert shrunk < plain, f"{draws} draws: {shrunk / draws:.3f} against {plain / draws:.3f}"


def test_the_highest_is_nearer_to_the_truth_after_shrinkage() -> None:
    rng, draws = np.random.default_rng(6), 2000
    bias = np.array([0.0, 0.0])
    for _ in range(draws):
        truth = 0.5 * rng.normal(size=8)
        means = truth + rng.normal(size=8)
        top = int(means.argmax())
        bias += np.array([means[top], shrink(means, 1.0, 1e9).values[top]]) - truth[top]
    plain, after = bias / draws
    assert plain > 0.8, f"{draws} draws"
    assert abs(after) < 0.3 * plain, f"{draws} draws: {plain:.3f} before, {after:.3f} after"
