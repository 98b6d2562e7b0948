"""The controllers study: its measures of one run, on series whose truth is known."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-controllers"))

from controllers_run import Run, measure


def run_of(kl, beta=None, target=0.1) -> object:
    kl = np.asarray(kl, dtype=float)
    beta = np.full(len(kl), 0.02) if beta is None else np.asarray(beta, dtype=float)
    return Run(kl, beta, np.full(len(kl), target))


class TestMeasure:
    def test_the_target_is_reached_when_the_mean_of_three_steps_is_there(self):
        found = measure(run_of([0.0, 0.0, 0.31, 0.0, 0.09, 0.09, 0.15, *[0.1] * 20]))

        assert found["reach"] == 3  # (0 + 0 + .31) / 3
        assert measure(run_of([0.095] * 20))["reach_by_end"] == 20
        assert math.isnan(measure(run_of([0.095] * 20))["reach"])

    def test_a_beta_wound_down_before_the_target_is_reached_is_seen(self):
        found = measure(run_of(np.linspace(0.01, 0.2, 20), np.geomspace(1, 1e-4, 20)))

        assert math.exp(found["log_at_target"]) == pytest.approx(
            10 ** (-4 * (found["reach"] - 1) / 19)
        )

    def test_the_way_back_of_kl_and_of_beta_is_timed(self):
        kl = [*np.linspace(0.01, 0.1, 10), *[0.4] * 10, *[0.05] * 10]
        beta = [*np.geomspace(1, 0.1, 12), *np.geomspace(0.12, 2, 18)]

        found = measure(run_of(kl, beta))

        assert found["reach"] == 11  # (.09 + .1 + .4) / 3
        assert found["back"] == 23  # (.05 + .05 + .05) / 3; the step before is at .167
        assert found["start_again"] == 1 + next(i for i, b in enumerate(beta) if i > 10 and b >= 1)

    def test_under_control_is_from_where_kl_stays_below_the_band_s_upper_edge(self):
        kl = [*np.linspace(0.01, 0.1, 10), *[0.4] * 10, *[0.1] * 10]

        found = measure(run_of(kl))

        assert found["control"] == found["control_by_end"] == 23  # (.1 + .1 + .1) / 3; before, .2
        assert measure(run_of([*kl, *[0.01] * 10]))["control"] == 23  # a fall is no loss of control

    def test_a_kl_that_never_comes_up_or_is_above_at_the_end_is_not_under_control(self):
        low, high = (measure(run_of([value] * 20)) for value in (0.079, 0.126))

        assert math.isnan(low["control"])
        assert math.isnan(high["control"])
        assert low["control_by_end"] == high["control_by_end"] == 21

    def test_without_overshoot_kl_is_under_control_where_it_comes_to_the_band(self):
        assert measure(run_of([*[0.05] * 10, *[0.081] * 10]))["control"] == 13
        assert measure(run_of([0.1] * 20))["control"] == 1

    def test_the_first_swing_is_timed_across_the_whole_band(self):
        kl = [*[0.01] * 9, *[0.2] * 8, *[0.09] * 12, *[0.05] * 12]

        found = measure(run_of(kl))

        assert found["reach"] == 11  # (.01 + .2 + .2) / 3
        # Step 20 is below the target already, step 30 the first below .8 times: (.09 + .09 + .05) / 3.
        assert found["back"] == 20
        assert found["first_swing"] == 30 - 11
        assert math.isnan(measure(run_of(kl[:29]))["first_swing"])

    def test_beta_is_followed_to_its_highest_and_kl_by_thirds(self):
        found = measure(run_of([*[0.1] * 10, *[0.3] * 10, *[0.2] * 10], [1, 5, *[0.5] * 28]))

        assert math.exp(found["log_highest"]) == pytest.approx(5)
        assert math.exp(found["log_mid_kl"]) == pytest.approx(0.3)
        assert math.exp(found["log_late_kl"]) == pytest.approx(0.2)
        assert math.exp(found["log_end_error"]) == pytest.approx(2.0)

    def test_overshoot_is_the_highest_smoothed_kl_after_the_target_was_reached(self):
        found = measure(run_of([*np.linspace(0, 0.1, 11), 0.3, 0.3, 0.3, *[0.1] * 20]))

        assert math.exp(found["log_overshoot"]) == pytest.approx(3.0)

    def test_error_is_that_of_the_last_third_alone(self):
        rng = np.random.default_rng(0)
        late = 0.1 * np.exp(0.2 + 0.3 * rng.normal(size=2000))

        found = measure(run_of([*[9.0] * 4000, *late]))

        assert found["log_error"] == pytest.approx(0.2, abs=0.03)
        assert found["error_sd"] == pytest.approx(0.3, abs=0.02)
        assert found["error_rms"] == pytest.approx(math.hypot(0.2, 0.3), abs=0.02)

    def test_a_beta_that_falls_and_comes_back_has_moved(self):
        found = measure(run_of([0.1] * 21, [*np.geomspace(1, 0.5, 11), *np.geomspace(0.5, 1, 10)]))

        assert found["log_end"] == pytest.approx(0)
        assert math.exp(found["log_moved"]) == pytest.approx(2)
