"""What a look chooses and what that loses: against brute force, and against losses that are known."""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-short-small"))

import short_small_looks as looks
from short_small_measures import GOALS

from kltune.statistics.arms import mean_of

SEEDS = 8
NUM_LOOKS = {1: 56, 2: 168, 4: 280, 7: 8}


def final_of(late_KS, curves_KSC=None):
    curves = np.stack([late_KS, late_KS], axis=2) if curves_KSC is None else curves_KSC
    return looks.Final(late_KS, late_KS, curves)


def seen(look_KS):
    """A start at 0 and one evaluation."""
    return np.stack([np.zeros_like(look_KS), look_KS], axis=2)


def brute_force(gold_KSC, final, goal, num):
    """Loss against each setting, shares of choices and the places of stops, one look after the other."""
    off, chosen, places = [], [], []
    late = final.end_KS if goal == "at_end" else final.stopped_KS
    for t in range(gold_KSC.shape[1]):
        others = [s for s in range(gold_KSC.shape[1]) if s != t]
        for part in combinations(others, num):
            mean_KC = gold_KSC[:, list(part)].mean(axis=1)
            value_K = (
                mean_KC[:, -2:].mean(axis=1) if goal == "at_end" else mean_KC[:, 1:].max(axis=1)
            )
            k = int(np.argmax(value_K))
            c = 1 + int(np.argmax(mean_KC[k, 1:]))
            worth = final.curves_KSC[k, t, c] if goal == "look_stop" else late[k, t]
            off.append(late[:, t] - worth)
            chosen.append(k)
            places.append(c)
    return np.mean(off, axis=0), np.array(chosen), np.array(places)


class TestDecide:
    @pytest.mark.parametrize("num", NUM_LOOKS)
    @pytest.mark.parametrize("goal", GOALS)
    def test_estimates_are_those_of_one_look_after_the_other(self, goal, num):
        rng = np.random.default_rng(num)
        gold_KSC = rng.normal(size=(4, SEEDS, 5))
        final = looks.Final(*rng.normal(size=(2, 4, SEEDS)), rng.normal(size=(4, SEEDS, 9)))

        found = looks.decide(
            looks.all_looks(gold_KSC, num, looks.redrawn_seeds(SEEDS, 20)), 5, final, goal
        )
        off_K, chosen, places = brute_force(gold_KSC, final, goal, num)

        assert len(chosen) == NUM_LOOKS[num]
        assert found.lost.mean == pytest.approx(max(0.0, *off_K))
        assert found.chosen_K.tolist() == pytest.approx(
            np.bincount(chosen, minlength=4) / len(chosen)
        )
        if goal == "look_stop":
            shares = np.bincount(places, minlength=5) / len(places)
            assert found.places_C.tolist() == pytest.approx(shares)
        else:
            assert [-one.mean for one in found.minus_always] == pytest.approx(off_K)

    def test_a_look_that_sees_fewer_evaluations_is_that_of_a_shorter_run(self):
        rng = np.random.default_rng(0)
        gold_KSC = rng.normal(size=(4, SEEDS, 9))
        final, draws = final_of(rng.normal(size=(4, SEEDS))), looks.redrawn_seeds(SEEDS, 20)

        short = looks.decide(looks.all_looks(gold_KSC, 2, draws), 4, final, "at_end")

        assert (
            short.lost
            == looks.decide(looks.all_looks(gold_KSC[:, :, :4], 2, draws), 4, final, "at_end").lost
        )

    @pytest.mark.parametrize("num", NUM_LOOKS)
    def test_the_interval_of_a_choice_that_never_changes_is_students(self, num):
        rng = np.random.default_rng(0)
        late_KS = rng.normal(size=(3, SEEDS))
        look_KS = np.array([0.0, 1.0, 2.0])[:, None] + np.zeros((3, SEEDS))
        draws = looks.redrawn_seeds(SEEDS, 1000)

        found = looks.decide(
            looks.all_looks(seen(look_KS), num, draws), 2, final_of(late_KS), "stopped"
        )
        known = mean_of(late_KS[2] - late_KS[0])

        assert found.chosen_K.tolist() == [0, 0, 1]
        assert found.minus_always[0].mean == pytest.approx(known.mean)
        assert found.minus_always[0].high == pytest.approx(known.high, abs=0.06)
        assert found.minus_always[2].high == found.minus_always[2].low == 0

    def test_the_same_choice_as_the_best_may_still_lose(self):
        """Which of two settings is the best isn't known: no loss of exactly 0 is found."""
        late_KS = np.random.default_rng(1).normal(0, 0.1, (2, SEEDS))
        late_KS[1] += 0.02
        look_KS = np.array([0.0, 1.0])[:, None] + np.zeros((2, SEEDS))
        draws = looks.redrawn_seeds(SEEDS)

        lost = looks.decide(
            looks.all_looks(seen(look_KS), 4, draws), 2, final_of(late_KS), "stopped"
        ).lost

        assert lost.low == 0
        assert lost.high > 0.03

    def test_no_copy_of_the_judged_seed_is_looked_at(self):
        """Settings that differ by nothing but noise, which look and final run share: seeing it would gain."""
        rng = np.random.default_rng(0)
        gains = []
        for _ in range(20):
            noise_KS = rng.normal(size=(5, SEEDS))
            found = looks.all_looks(seen(noise_KS), 1, looks.redrawn_seeds(SEEDS, 100))
            gains.append(looks.decide(found, 2, final_of(noise_KS), "stopped").gain_D[1:].mean())

        assert np.mean(gains) < 0.05


class TestCoverage:
    LATE = np.array([0.94, 1.14, 1.21, 0.82, 0.22])
    SPREAD = np.array([0.25, 0.16, 0.1, 0.15, 0.08])

    @pytest.mark.parametrize("num", [1, 4, 7])
    def test_the_interval_holds_the_loss_that_is_known(self, num):
        """Looks that are a toss of coins between four of five settings, as a quarter of the small model's."""
        rng = np.random.default_rng(1)
        look_K, noise, runs = np.array([0.241, 0.245, 0.231, 0.22, 0.0]), 0.09, 120
        many = look_K[:, None] + noise / np.sqrt(num) * rng.normal(size=(5, 200_000))
        true = self.LATE.max() - self.LATE[many.argmax(axis=0)].mean()
        draws = looks.redrawn_seeds(SEEDS, 100)
        held, means = [], []
        for _ in range(runs):
            look_KS = look_K[:, None] + noise * rng.normal(size=(5, SEEDS))
            late_KS = self.LATE[:, None] + self.SPREAD[:, None] * rng.normal(size=(5, SEEDS))
            found = looks.decide(
                looks.all_looks(seen(look_KS), num, draws), 2, final_of(late_KS), "stopped"
            )
            held.append(found.lost.low <= true <= found.lost.high)
            means.append(-found.minus_always[2].mean)

        assert np.mean(held) >= 0.9  # of 120: 95 % less two and a half standard errors
        assert np.mean(means) == pytest.approx(true, abs=0.035)


class TestRank:
    def test_it_is_the_mean_over_all_halves(self):
        rng = np.random.default_rng(0)
        gold_KSC, late_KS = rng.normal(size=(5, SEEDS, 4)), rng.normal(size=(5, SEEDS))
        found = looks.rank_on_other_seeds(
            gold_KSC, late_KS, "stopped", looks.redrawn_seeds(SEEDS, 20)
        )
        agreed = []
        for half in combinations(range(SEEDS), 4):
            other = [s for s in range(SEEDS) if s not in half]
            early = gold_KSC[:, list(half)].mean(axis=1)[:, 1:].max(axis=1)
            ranks = [one.argsort().argsort() for one in (early, late_KS[:, other].mean(axis=1))]
            agreed.append(np.corrcoef(*ranks)[0, 1])

        assert len(agreed) == 70
        assert found.mean == pytest.approx(np.mean(agreed))

    def test_seeds_agree_only_on_what_is_no_noise(self):
        rng = np.random.default_rng(0)
        draws = looks.redrawn_seeds(SEEDS, 10)
        noise = rng.normal(size=(60, 6, SEEDS))
        signal = np.arange(6)[:, None] + 0.01 * rng.normal(size=(6, SEEDS))

        found = [looks.rank_on_other_seeds(seen(x), x, "stopped", draws).mean for x in noise]
        assert abs(np.mean(found)) < 0.2
        assert looks.rank_on_other_seeds(seen(signal), signal, "stopped", draws).low == 1.0

    def test_two_settings_have_no_order(self):
        x = np.zeros((2, SEEDS))
        assert (
            looks.rank_on_other_seeds(seen(x), x, "stopped", looks.redrawn_seeds(SEEDS, 2)) is None
        )


def test_of_redrawn_seeds_the_first_set_is_as_they_are():
    draws = looks.redrawn_seeds(5, 7)
    assert draws[0].tolist() == list(range(5))
    assert draws.shape == (8, 5)
