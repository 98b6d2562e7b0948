"""Dunnett's two-sided 5 % limits against his table (1964), and against the plain t test."""

from __future__ import annotations

import pytest
from scipy import stats

from kltune.statistics.dunnett import adjusted_p, critical, within


@pytest.mark.parametrize(
    ("df", "comparisons", "limit"),
    [
        (5, 1, 2.57), (5, 2, 3.03), (5, 3, 3.29), (10, 2, 2.57), (10, 3, 2.76), (10, 4, 2.89),
        (20, 2, 2.38), (20, 3, 2.54), (20, 4, 2.65), (1e7, 2, 2.21), (1e7, 4, 2.44),
    ],
)  # fmt: skip
def test_limits_are_those_of_the_table(df: float, comparisons: int, limit: float) -> None:
    assert critical(comparisons, df, 0.95) == pytest.approx(limit, abs=0.006)


def test_one_comparison_is_a_t_test() -> None:
    assert critical(1, 7.5, 0.95) == pytest.approx(stats.t.ppf(0.975, 7.5))
    assert adjusted_p(2.0, 1, 9) == pytest.approx(2 * stats.t.sf(2.0, 9))


def test_limit_and_p_agree() -> None:
    limit = critical(4, 12.3, 0.95)
    assert within(limit, 4, 12.3) == pytest.approx(0.95, abs=1e-8)
    assert adjusted_p(-limit, 4, 12.3) == pytest.approx(0.05, abs=1e-8)
