from __future__ import annotations

import itertools
import math

import pytest

from kltune.errors import SpecError
from kltune.explain.distribution import EXAMPLE, log_ratios
from kltune.explain.mean import MeanQuestion, Reading, explain_mean, truncated_mean


def test_a_small_negative_mean_is_noise() -> None:
    # Field case E1.
    facts = explain_mean(MeanQuestion(-0.07, tokens=40))
    assert facts.reading is Reading.NOISE
    assert facts.chance == pytest.approx(math.exp(-16 * 0.07))
    assert facts.standard_error == pytest.approx(math.sqrt(2 * 0.07 / 16))
    assert facts.errors_below == pytest.approx(0.14 / facts.standard_error)
    assert facts.plausible_rows == 65


def test_minus_5_with_truncated_sampling_is_a_matter_of_settings() -> None:
    # Field case E1.
    assert explain_mean(MeanQuestion(-5, top_k=50)).reading is Reading.SETTINGS
    assert explain_mean(MeanQuestion(-5)).reading is Reading.SETTINGS


@pytest.mark.parametrize("mean", [-0.07, 0.3])
def test_truncated_sampling_is_a_matter_of_settings_whatever_the_mean(mean: float) -> None:
    assert explain_mean(MeanQuestion(mean, top_k=50)).reading is Reading.SETTINGS
    assert explain_mean(MeanQuestion(mean, top_p=0.9)).reading is Reading.SETTINGS


def test_a_truncation_that_is_off_is_none() -> None:
    facts = explain_mean(MeanQuestion(-0.07, top_k=0, top_p=1.0))
    assert (facts.reading, facts.is_truncated) == (Reading.NOISE, False)


def test_more_answers_leave_less_room_for_noise() -> None:
    assert explain_mean(MeanQuestion(-0.07, rows=65)).reading is Reading.NOISE
    assert explain_mean(MeanQuestion(-0.07, rows=66)).reading is Reading.SETTINGS


def test_no_mean_of_samples_is_likelier_than_the_bound() -> None:
    # Every sequence of four answers of the worked example.
    ratios = log_ratios(EXAMPLE.policy, EXAMPLE.reference)
    chances: dict[float, float] = {}
    for places in itertools.product(range(5), repeat=4):
        mean = round(math.fsum(ratios[i] for i in places) / 4, 9)
        chances[mean] = chances.get(mean, 0) + math.prod(EXAMPLE.policy[i] for i in places)
    negative = [mean for mean in chances if mean < -1e-6]
    assert len(negative) >= 4
    for mean in negative:
        facts = explain_mean(MeanQuestion(mean, rows=4))
        assert facts.chance is not None
        assert math.fsum(c for m, c in chances.items() if m <= mean) <= facts.chance


def test_units_are_converted_by_the_mean_length() -> None:
    seq, token = (
        explain_mean(MeanQuestion(-2, tokens=40)),
        explain_mean(MeanQuestion(-0.05, unit="token", tokens=40)),
    )
    assert (seq.mean_token, token.mean_seq) == (pytest.approx(-0.05), pytest.approx(-2))
    assert seq.chance == pytest.approx(token.chance or 0)


def test_zero_and_positive_means_are_read_too() -> None:
    assert explain_mean(MeanQuestion(0)).reading is Reading.ZERO
    ordinary = explain_mean(MeanQuestion(0.3))
    assert (ordinary.reading, ordinary.chance, ordinary.answers_for_odds) == (
        Reading.ORDINARY,
        None,
        10,
    )
    assert explain_mean(MeanQuestion(3, unit="token")).reading is Reading.DIVERGED


def test_truncation_turns_the_example_negative() -> None:
    # A .30 and B .25 are kept: A's log-ratio alone counts.
    assert truncated_mean(2) == pytest.approx(0.30 * math.log(0.75) / 0.55)
    assert truncated_mean(5) == pytest.approx(0.0470, abs=5e-5)
    assert explain_mean(MeanQuestion(-1)).truncation.example_kept == 2


def test_top_p_bounds_what_truncation_can_do() -> None:
    cut = explain_mean(MeanQuestion(-5, top_p=0.9, tokens=40)).truncation
    assert cut.lowest_token == pytest.approx(math.log(0.9))
    assert cut.lowest_seq == pytest.approx(40 * math.log(0.9))
    assert explain_mean(MeanQuestion(-5, top_p=0.9, top_k=50)).truncation.lowest_seq is None


@pytest.mark.parametrize("kept", [0.5, 0.7, 0.9])
def test_no_truncation_of_the_example_goes_below_the_bound(kept: float) -> None:
    order = sorted(EXAMPLE.policy, reverse=True)
    count = next(n for n in range(1, 6) if math.fsum(order[:n]) >= kept)
    assert truncated_mean(count) >= math.log(kept)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (MeanQuestion(math.nan), "--mean: must be a finite number (got nan)"),
        (MeanQuestion(-1, unit="word"), "--unit: must be token or sequence (got 'word')"),
        (MeanQuestion(-1, tokens=0), "--tokens: must be 1 or more (got 0)"),
        (MeanQuestion(-1, rows=0), "--rows: must be a whole number of at least 1 (got 0)"),
        (MeanQuestion(-1, top_k=-1), "--top-k: must be 1 or more, or 0 for off (got -1)"),
        (MeanQuestion(-1, top_p=1.5), "--top-p: must be above 0 and at most 1 (got 1.5)"),
    ],
)
def test_bad_numbers_are_refused(question: MeanQuestion, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        explain_mean(question)
    assert str(caught.value) == told
