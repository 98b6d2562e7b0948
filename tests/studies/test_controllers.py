"""The controllers study, scaled down."""

from __future__ import annotations

import pytest
from studies_case import run_small


@pytest.fixture(scope="module")
def scaled_down(tmp_path_factory):
    return run_small("2026-11-30-controllers", tmp_path_factory.mktemp("controllers"))


@pytest.mark.slow
def test_the_usual_horizon_moves_nothing_and_a_gain_of_1_winds_beta_down_on_the_way(scaled_down):
    usual, high = (scaled_down["settings"][name] for name in ("gain 0.0064", "gain 1"))

    assert usual["inert"] == {"predicted": True, "measured": True}
    assert high["inert"] == {"predicted": False, "measured": False}
    assert usual["beta_at_target"]["mean"] == pytest.approx(0.02, rel=0.06)
    assert high["beta_at_target"]["mean"] < usual["beta_at_target"]["mean"] / 3
    assert high["moved_factor"]["mean"] > 10


@pytest.mark.slow
def test_a_floor_keeps_beta_at_its_start_where_the_same_gain_takes_it_down(scaled_down):
    floored = scaled_down["cures"]["settings"]["gain 1, never below 0.02"]

    assert floored["lowest_beta"]["mean"] == pytest.approx(0.02)
    assert scaled_down["settings"]["gain 1"]["lowest_beta"]["mean"] < 0.02 / 3
