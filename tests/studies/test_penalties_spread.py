"""The penalties study: spread over seeds."""

from __future__ import annotations

import sys

import numpy as np
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-penalties"))

from penalties_spread import spread_ratio


def test_the_ratio_of_two_spreads_is_covered():
    rng = np.random.default_rng(2)
    common = rng.normal(size=(500, 8))
    a, b = common + rng.normal(size=(500, 8)), 3 * (common + rng.normal(size=(500, 8)))

    found = [spread_ratio(one, other) for one, other in zip(a, b, strict=True)]

    assert 0.92 < np.mean([one["low"] < 1 / 3 < one["high"] for one in found]) < 0.98
