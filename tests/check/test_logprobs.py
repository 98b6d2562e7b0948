from __future__ import annotations

import math
from dataclasses import replace

import pytest
import soundness_case as case

from kltune.check.logprobs import (
    dropout_line,
    logprob_line,
    padding_line,
    sampler_line,
    temperature_line,
)
from kltune.check.scale import Scale
from kltune.grade import Grade

FP32, BF16 = Scale("fp32", 0.5, 1.0), Scale("bf16", 0.5, 1.0)


def test_a_sound_set_up_passes_every_line_without_a_remedy() -> None:
    lines = (
        padding_line(case.padding(), FP32),
        logprob_line(case.oracle(), FP32),
        temperature_line(case.oracle(), FP32),
        sampler_line(case.sampler(), FP32),
        dropout_line(case.dropout(), FP32),
    )
    assert {(line.grade, line.remedy) for line in lines} == {(Grade.PASS, "")}


@pytest.mark.parametrize(
    ("field", "way"),
    [
        ("policy_left", "left padding"),
        ("reference_right", "right padding"),
        ("policy_neighbours", "neighbours"),
        ("reference_neighbours", "neighbours"),
    ],
)
def test_padding_and_neighbours_that_count_fail_by_their_way(field: str, way: str) -> None:
    line = padding_line(replace(case.padding(), **{field: 0.2}), FP32)
    assert line.grade is Grade.FAIL
    assert way in line.shown
    assert padding_line(replace(case.padding(), **{field: math.nan}), FP32).grade is Grade.FAIL


def test_what_rounding_makes_in_bf16_is_no_fault_there() -> None:
    rough = replace(case.padding(), policy_left=0.05)
    assert padding_line(rough, BF16).grade is Grade.PASS
    assert padding_line(rough, FP32).grade is Grade.FAIL


def test_a_shift_fails_as_logprobs_and_says_by_how_much() -> None:
    shifted = replace(
        case.oracle(), policy_gap=5.0, reference_gap=5.0, mean_gap=2.0, best_shift=1, shift_gap=1e-7,
        cause="shift",
    )  # fmt: skip
    line = logprob_line(shifted, FP32)
    assert line.grade is Grade.FAIL
    assert "token 1 after" in line.shown
    assert temperature_line(shifted, FP32).grade is Grade.PASS


def test_another_temperature_fails_as_temperature_alone() -> None:
    hot = replace(
        case.oracle(), policy_gap=2.0, reference_gap=2.0, mean_gap=0.7, fitted_temperature=0.7,
        fitted_gap=1e-6, cause="temperature",
    )  # fmt: skip
    assert logprob_line(hot, FP32).grade is Grade.PASS
    line = temperature_line(hot, FP32)
    assert line.grade is Grade.FAIL
    assert "at 0.7" in line.shown


def test_a_gap_without_a_cause_fails_as_logprobs_and_names_the_model() -> None:
    line = logprob_line(replace(case.oracle(), reference_gap=0.3, cause="unknown"), FP32)
    assert line.grade is Grade.FAIL
    assert "(reference)" in line.shown


@pytest.mark.parametrize("field", ["start_gap", "moved_gap"])
def test_a_sampler_of_other_logprobs_fails(field: str) -> None:
    line = sampler_line(replace(case.sampler(), **{field: -0.2}), FP32)
    assert line.grade is Grade.FAIL
    assert line.remedy


def test_a_sampler_that_was_not_looked_at_after_a_step_passes() -> None:
    unmoved = replace(case.sampler(), moved_gap=None, moved_mean=None)
    assert sampler_line(unmoved, FP32).grade is Grade.PASS


def test_dropout_fails_by_its_modules_and_by_what_it_does() -> None:
    named = dropout_line(
        replace(case.dropout(), num_active=1, active=("model.layers.0.drop",)), FP32
    )
    assert named.grade is Grade.FAIL
    assert "model.layers.0.drop" in named.shown
    hidden = dropout_line(replace(case.dropout(), policy_gap=0.2), FP32)
    assert (hidden.grade, bool(hidden.remedy), "0.2 nats" in hidden.shown) == (
        Grade.FAIL,
        True,
        True,
    )
    assert dropout_line(replace(case.dropout(), scores_repeat=False), FP32).grade is Grade.FAIL


def test_a_rate_in_the_config_alone_is_harmless() -> None:
    line = dropout_line(replace(case.dropout(), in_config=("attention_dropout 0.1",)), FP32)
    assert line.grade is Grade.PASS
    assert "attention_dropout 0.1" in line.shown
