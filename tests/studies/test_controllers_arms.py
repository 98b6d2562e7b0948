"""The controllers study: target and gain of a setting."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-controllers"))

from controllers_arms import HALF, STAGED, gain_of, target_at


def test_the_staged_target_is_that_in_force_at_each_step():
    (name,) = STAGED

    target = target_at(name, np.arange(1.0, 61), 60)

    assert target[:20] == pytest.approx(0.3)
    assert target[20:41] == pytest.approx(0.099)  # step 21 is the first at a share of .33
    assert target[41:] == pytest.approx(0.03)


def test_the_gain_is_that_of_the_sequences_that_a_step_has():
    same_gain, same_horizon = HALF
    assert gain_of(same_gain) == pytest.approx(0.3)
    assert gain_of(same_horizon) == pytest.approx(0.15)
