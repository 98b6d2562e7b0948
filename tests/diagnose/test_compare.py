from __future__ import annotations

import json
import random

import pytest
from diagnose_case import run_log, trl_log

from kltune.diagnose.compare import compare
from kltune.metrics.jsonl import encode
from kltune.symptoms.curve import Quantity

PROXY, KL = Quantity.PROXY, Quantity.KL_TOKEN


def noisy(seed: int, shift_from: int = 1000, count: int = 60) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(0, 0.1) + (1.0 if i >= shift_from else 0.0) for i in range(count)]


def test_equal_runs_are_said_to_be_equal() -> None:
    run = trl_log("healthy")
    found = compare(run, run)
    assert found.differs_at is None
    assert found.first is None
    assert "the same in every number of their 40 common steps" in found.headline()


def test_the_first_other_digit_is_found() -> None:
    values = noisy(0)
    other = [*values[:30], values[30] + 1e-12, *values[31:]]
    found = compare(run_log({PROXY: values}), run_log({PROXY: other}))
    assert found.differs_at == (31, PROXY)
    assert found.first is None


def test_the_step_of_parting_is_found_within_the_window() -> None:
    a, b = run_log({PROXY: noisy(0)}), run_log({PROXY: noisy(1, shift_from=30)})
    first = compare(a, b).first
    assert first is not None
    assert first.quantity is PROXY
    assert first.step is not None
    assert 26 <= first.step <= 33
    assert first.end_b - first.end_a == pytest.approx(1, abs=0.2)


def test_noise_alone_parts_no_more_often_than_said() -> None:
    parted = sum(
        compare(run_log({PROXY: noisy(2 * i)}), run_log({PROXY: noisy(2 * i + 1)})).first
        is not None
        for i in range(200)
    )
    assert parted <= 6


def test_real_runs_part_where_beta_acts() -> None:
    found = compare(trl_log("healthy"), trl_log("beta_huge"))
    assert found.differs_at is not None
    assert found.differs_at[0] == 2  # the first step is before any update
    parted = {one.quantity: one.step for one in found.partings if one.step is not None}
    assert {KL, Quantity.ENTROPY, Quantity.GOLD} <= set(parted)
    assert found.first is not None
    assert found.first.quantity is Quantity.KL_SEQ
    assert found.is_apart


def test_two_seeds_of_one_setting_are_never_a_reason_to_fail() -> None:
    a = run_log({PROXY: noisy(0)}, facts={"beta": 0.1, "seed": 1.0})
    shifted = noisy(1, shift_from=20)
    seeds = compare(a, run_log({PROXY: shifted}, facts={"beta": 0.1, "seed": 2.0}))
    settings = compare(a, run_log({PROXY: shifted}, facts={"beta": 0.2, "seed": 2.0}))
    assert seeds.first is not None
    assert (seeds.is_apart, settings.is_apart) == (False, True)
    assert "Only the seed was set differently, so this is a note" in seeds.headline()
    for found in (seeds, settings):
        assert "the noise within a run is not the noise between seeds" in found.headline()


def test_what_goes_away_again_is_said_and_fails_nothing() -> None:
    back = [y - (1.0 if i >= 30 else 0.0) for i, y in enumerate(noisy(1, shift_from=20))]
    found = compare(run_log({PROXY: noisy(0)}), run_log({PROXY: back}))
    assert found.first is not None
    assert not found.is_apart
    assert "It does not last" in found.headline()


def test_a_setting_that_differs_is_not_told_as_its_effect() -> None:
    rate = Quantity.LEARNING_RATE
    found = compare(run_log({rate: [1e-3] * 40}), run_log({rate: [2e-3] * 40}))
    assert "That is what was set, not what came of it" in found.headline()


def test_what_came_of_a_setting_is_named_before_the_setting() -> None:
    beta = Quantity.BETA
    a = run_log({beta: [0.1] * 60, PROXY: noisy(0)})
    b = run_log({beta: [0.2] * 60, PROXY: noisy(1, shift_from=30)})
    first = compare(a, b).first
    assert first is not None
    assert first.quantity is PROXY


def test_extremes_of_single_tokens_are_named_after_all_others() -> None:
    largest = Quantity.KL_MAX_TOKEN
    a = run_log({largest: noisy(0), PROXY: noisy(2)})
    b = run_log({largest: noisy(1, shift_from=10), PROXY: noisy(3, shift_from=40)})
    assert [one.quantity for one in compare(a, b).partings] == [PROXY, largest]


def test_kl_of_other_estimators_or_units_is_not_compared() -> None:
    a = run_log({KL: [0.1] * 10}, estimators={KL: "k3"})
    b = run_log({KL: [0.1] * 10}, estimators={KL: "k1"})
    found = compare(a, b)
    assert found.partings == ()
    assert "estimators can't be compared" in found.left_out[0]
    target = Quantity.TARGET
    units = compare(
        run_log({target: [6.0] * 9}, units={target: "nats/sequence"}), run_log({target: [0.1] * 9})
    )
    assert "A is in nats/sequence, B in nats/token" in units.left_out[0]


def test_what_only_one_has_is_named() -> None:
    found = compare(run_log({KL: [0.1] * 5, PROXY: [1.0] * 5}), run_log({PROXY: [1.0] * 5}))
    assert found.left_out == ("reference KL per token: only A has it",)


def test_what_was_set_differently_is_listed() -> None:
    a = run_log({PROXY: [1.0] * 5}, facts={"beta": 0.1, "seed": 1.0, "algorithm": "grpo"})
    b = run_log({PROXY: [1.0] * 5}, facts={"beta": 0.2, "seed": 1.0})
    found = compare(a, b).facts
    assert found == (("algorithm", "grpo", "not known"), ("beta", "0.1", "0.2"))


def test_a_schedule_without_noise_parts_at_its_first_difference() -> None:
    rate = Quantity.LEARNING_RATE
    a, b = run_log({rate: [1e-3] * 20}), run_log({rate: [*[1e-3] * 8, *[1e-2] * 12]})
    first = compare(a, b).first
    assert first is not None
    assert first.step == 9


def test_rounding_is_a_difference_and_no_parting() -> None:
    rate = Quantity.LEARNING_RATE
    a, b = run_log({rate: [1e-3] * 20}), run_log({rate: [1e-3 + 1e-13] * 20})
    found = compare(a, b)
    assert found.differs_at == (1, rate)
    assert found.first is None


def test_runs_without_a_common_step_are_not_called_equal() -> None:
    found = compare(run_log({PROXY: [1.0] * 5}), run_log({PROXY: [1.0] * 5}, steps=range(10, 15)))
    assert found.headline() == "The runs have no step in common."


def test_json_is_strict() -> None:
    whole = json.loads(encode(compare(trl_log("healthy"), trl_log("beta_zero")).as_json()))
    assert whole["common_steps"] == 40
    assert any("only A has it" in text for text in whole["left_out"])
