"""Scores whose differences single precision can't hold."""

from __future__ import annotations

import numpy as np
import pytest

from kltune.statistics.single_precision import LARGEST, LOST, STEP, lost_in_single


def test_constants_are_those_of_the_type() -> None:
    info = np.finfo(np.float32)
    assert (float(info.max), float(info.eps)) == (LARGEST, STEP)


@pytest.mark.parametrize("mean", [1e12, -1e12, 1e7])
def test_an_offset_that_rounds_the_spread_away_is_told(mean: float) -> None:
    found = lost_in_single(mean, 0.25, abs(mean))
    assert found is not None
    assert "drowns their spread of 0.25" in found
    scores = np.float32(mean + np.linspace(0, 1, 1000))
    assert np.abs(scores.astype(float) - mean - np.linspace(0, 1, 1000)).max() > LOST * 0.25


@pytest.mark.parametrize(
    ("mean", "spread"), [(0.5, 0.25), (1e4, 0.25), (1e30, 2e29), (1e-9, 1e-10)]
)
def test_usual_scores_of_any_scale_are_held(mean: float, spread: float) -> None:
    assert lost_in_single(mean, spread, 2 * abs(mean)) is None


def test_scores_beyond_the_type_are_told() -> None:
    found = lost_in_single(1e300, 1e299, 2e300)
    assert found is not None
    assert "beyond single precision" in found


def test_no_spread_at_all_is_another_fault() -> None:
    assert lost_in_single(1e12, 0.0, 1e12) is None
