from __future__ import annotations

import numpy as np
import pytest

from kltune.frameworks.samples import Samples, k2, k3


def rows(*log_ratios: list[float], weight: list[float] | None = None) -> Samples:
    width = max(map(len, log_ratios))
    values = np.array([row + [0.0] * (width - len(row)) for row in log_ratios])
    mask = np.array([[t < len(row) for t in range(width)] for row in log_ratios])
    share = None if weight is None else np.array(weight)
    return Samples(values - 1.0, np.full_like(values, -1.0), mask, share)


def test_three_averages_of_the_same_rows_differ() -> None:
    samples = rows([0.1, 0.2, 0.3], [0.4])  # field case A22
    log_ratio = samples.log_ratio_NT
    assert samples.sequence_mean(log_ratio) == pytest.approx(0.5)
    assert samples.token_mean(log_ratio) == pytest.approx(0.25)
    assert samples.mean_of_token_means(log_ratio) == pytest.approx(0.3)


def test_what_stands_at_masked_positions_does_not_matter() -> None:
    for junk in (np.nan, np.inf, -np.inf, 1e10):  # field case A7
        samples = Samples(
            np.array([[-0.1, junk]]), np.array([[0.0, -junk]]), np.array([[True, False]])
        )
        assert samples.token_mean(k3(samples.log_ratio_NT)) == pytest.approx(0.0051709, abs=1e-7)


def test_the_sign_is_kept() -> None:
    samples = rows([-0.5, 0.1])
    assert samples.token_mean(samples.log_ratio_NT) == pytest.approx(-0.2)


def test_weights_count_like_repeated_rows() -> None:
    weighted = rows([0.1, 0.2, 0.3], [0.4], weight=[0.75, 0.25])
    repeated = rows(*[[0.1, 0.2, 0.3]] * 3, [0.4])
    for name in ("token_mean", "sequence_mean", "mean_of_token_means"):
        got = getattr(weighted, name)(weighted.log_ratio_NT)
        assert got == pytest.approx(getattr(repeated, name)(repeated.log_ratio_NT))


def test_k2_and_k3_of_the_field_case() -> None:
    log_ratio = np.array([[0.2, -0.5, 0.1]])  # field case A1
    assert k2(log_ratio).sum() == pytest.approx(0.15)
    assert k3(log_ratio).sum() == pytest.approx(0.172289, abs=1e-6)
