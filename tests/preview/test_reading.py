from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from preview_case import forecast_of, hump, opposite, same, scored, unrelated

from kltune.preview.curves import Scored, resamples, trace_best_of_n, trace_tilt
from kltune.preview.reading import ERROR, order, read_curve
from kltune.preview.result import Reading, Verdict


def _readings(data: Scored) -> tuple[Reading, ...]:
    shares = resamples(len(data.proxy_PN), 0)
    return tuple(read_curve(trace(data), shares) for trace in (trace_tilt, trace_best_of_n))


def test_gold_that_is_the_proxy_has_no_peak() -> None:
    for reading in _readings(scored(same)):
        assert reading.verdict is Verdict.RISES
        assert reading.parted_kl_seq is None
        assert reading.peak_kl_seq.high is None  # open: beyond the sample
        assert reading.peak_kl_seq.value == reading.seen_kl_seq


def test_gold_that_is_minus_the_proxy_falls_from_the_start() -> None:
    for reading in _readings(scored(opposite)):
        assert reading.verdict is Verdict.FALLS
        assert reading.peak_kl_seq.value == 0
        assert reading.parted_kl_seq is not None
        assert reading.parted_kl_seq < 0.25


def test_a_hump_is_found_where_it_is() -> None:
    # 16 times as many completions as usual, so that the tilt reaches past the peak at 0.5 nats.
    tilt, best_of_n = _readings(scored(hump, samples=1024))
    assert tilt.verdict is Verdict.TURNS
    low, high = tilt.peak_kl_seq.low, tilt.peak_kl_seq.high
    assert low is not None
    assert high is not None
    assert low <= 0.5 <= high
    assert best_of_n.verdict is Verdict.TURNS


@pytest.mark.slow
def test_false_turns_and_falls_are_rare_where_gold_has_nothing_to_do_with_the_proxy() -> None:
    draws = 150
    wrong = 0
    for seed in range(draws):
        readings = _readings(scored(unrelated, prompts=24, samples=24, seed=seed))
        wrong += any(reading.verdict is not Verdict.UNCLEAR for reading in readings)
    # Both curves together may err in 5 %; 150 draws exceed 16 with probability .001 at .065.
    assert wrong <= 16, f"{wrong} of {draws} claimed something (allowed {2 * ERROR:.0%})"


@pytest.mark.slow
def test_a_false_peak_is_rare_where_gold_rises_all_the_way() -> None:
    def noisy(proxy: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return proxy + generator.normal(scale=2.0, size=proxy.shape)

    draws = 100
    wrong = sum(
        any(r.parted_kl_seq is not None for r in _readings(scored(noisy, 24, 24, seed)))
        for seed in range(draws)
    )
    assert wrong <= 3, f"{wrong} of {draws} saw a fall that is not there"


def test_the_gain_has_an_interval_that_holds_the_truth() -> None:
    tilt, _ = _readings(scored(same, samples=256))
    # Gold is the proxy: along the tilt it gains 1 / beta.
    assert tilt.peak_knob is not None
    assert tilt.gain.value == pytest.approx(1 / tilt.peak_knob, rel=0.15)


def test_few_prompts_claim_nothing() -> None:
    found = forecast_of(scored(opposite, prompts=7))
    assert found.reading.verdict is Verdict.UNCLEAR
    assert any("7 prompts are too few" in note for note in found.notes)


def test_a_fall_beside_a_clear_rise_of_the_other_curve_is_a_turn() -> None:
    rising, _ = _readings(scored(same))
    falling, _ = _readings(scored(opposite))
    first, second = order((rising, falling))
    assert (first.verdict, second.verdict) == (Verdict.TURNS, Verdict.RISES)


def test_one_score_for_every_completion_leaves_the_reference_alone() -> None:
    data = scored(unrelated)
    flat = Scored(np.zeros_like(data.proxy_PN), data.gold_PN, data.tokens_PN, 64)
    traced = trace_tilt(flat)
    assert traced.knob_G == (np.inf,)
    assert read_curve(traced, resamples(48, 0)).verdict is Verdict.UNCLEAR


def test_prompts_that_agree_to_the_last_digit_need_no_noise_to_differ() -> None:
    traced = trace_best_of_n(scored(same))
    shape = traced.gold_GP.shape
    falling = replace(
        traced, gold_GP=np.repeat(-np.arange(shape[0], dtype=float)[:, None], shape[1], 1)
    )
    reading = read_curve(falling, resamples(shape[1], 0))
    assert reading.verdict is Verdict.FALLS
    assert reading.parted_kl_seq == traced.kl_GP[1, 0]
    flat = replace(traced, gold_GP=np.ones(shape))
    assert read_curve(flat, resamples(shape[1], 0)).verdict is Verdict.UNCLEAR
