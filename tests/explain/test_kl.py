from __future__ import annotations

import math

import pytest

from kltune.explain.distribution import EXAMPLE, Pair
from kltune.explain.kl import SAMPLE_SIZES, answers_for_odds, explain_kl, move_cost, price_list

FACTS = explain_kl(EXAMPLE)


def test_the_worked_example_in_nats_and_bits() -> None:
    assert FACTS.kl == pytest.approx(0.0470, abs=5e-5)
    assert FACTS.kl_other_way == pytest.approx(0.0423, abs=5e-5)
    assert FACTS.kl_bits * math.log(2) == pytest.approx(FACTS.kl)
    assert math.fsum(a.contribution for a in FACTS.answers) == pytest.approx(FACTS.kl)
    assert FACTS.negative_share == 0.30


def test_64_answers_bring_a_reader_to_20_to_1() -> None:
    assert FACTS.answers_for_odds == 64
    assert answers_for_odds(0.0) is None
    assert answers_for_odds(math.inf) == 1


def test_a_rare_answer_costs_7_4_times_as_much_for_the_same_move() -> None:
    cheapest, *_, rare = FACTS.moves
    assert (cheapest.giver, cheapest.taker, cheapest.kl) == (
        "A",
        "B",
        pytest.approx(0.0317, abs=5e-5),
    )
    assert (rare.taker, rare.is_added, rare.giver_before) == ("F", True, 0.395)
    assert rare.kl == pytest.approx(0.2336, abs=5e-5)
    assert rare.times == pytest.approx(7.4, abs=0.05)


def test_the_price_list_needs_an_answer_that_can_give() -> None:
    assert price_list([0.1] * 10) == ()
    assert price_list([1.0, 0.0]) == ()
    assert move_cost([0.5, 0.5], 0, 1, 0.0) == 0


def test_samples_come_nearer_to_the_kl() -> None:
    assert [sample.answers for sample in FACTS.samples] == list(SAMPLE_SIZES) == [10, 100, 10_000]
    errors = [sample.k1_se for sample in FACTS.samples]
    assert errors == sorted(errors, reverse=True)
    for sample in FACTS.samples:
        assert abs(sample.k1 - FACTS.kl) < 4 * FACTS.log_ratio_sd / math.sqrt(sample.answers)
        assert sample.k3 >= 0


def test_samples_are_the_seeds() -> None:
    assert explain_kl(EXAMPLE).samples == FACTS.samples
    assert explain_kl(EXAMPLE, seed=2).samples != FACTS.samples


def test_error_bars_hold_the_kl_as_often_as_they_should() -> None:
    draws = [explain_kl(EXAMPLE, seed).samples[1] for seed in range(200)]
    held = sum(abs(d.k1 - FACTS.kl) < 2 * d.k1_se for d in draws) / len(draws)
    assert 0.90 < held < 0.99


def test_an_infinite_kl_has_no_samples() -> None:
    facts = explain_kl(Pair((0.5, 0.5), (1.0, 0.0)))
    assert (facts.kl, facts.samples) == (math.inf, ())
    assert facts.kl_other_way == pytest.approx(math.log(2))
