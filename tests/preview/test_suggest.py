from __future__ import annotations

import math

import pytest
from preview_case import forecast_of, hump, opposite, same, scored, unrelated

from kltune.preview.suggest import beta_at


def test_the_suggested_ranges_hold_the_peak() -> None:
    found = forecast_of(scored(hump, samples=512), kl_unit="sequence")
    assert found.suggestion.target_kl is not None
    assert found.suggestion.beta is not None
    low, high = found.suggestion.target_kl
    assert low < 0.5 < high
    low, high = found.suggestion.beta
    assert low < 1.0 < high  # normal rewards: KL 1 / (2 beta²) = 0.5 at beta 1


def test_target_kl_is_in_the_unit_of_the_spec() -> None:
    data = scored(hump, samples=512)
    by_token = forecast_of(data).suggestion.target_kl
    by_sequence = forecast_of(data, kl_unit="sequence").suggestion.target_kl
    assert by_token is not None
    assert by_sequence is not None
    assert by_token[1] == pytest.approx(by_sequence[1] / 10, rel=0.1)  # 10 tokens per completion


def test_target_kl_ends_at_the_limit_of_the_objective() -> None:
    suggestion = forecast_of(scored(same), kl_limit=0.15).suggestion
    assert suggestion.target_kl is not None
    assert suggestion.target_kl[1] == 0.15
    assert any("kl_limit" in reason for reason in suggestion.reasons)


def test_a_limit_below_the_range_is_said_and_changes_nothing() -> None:
    suggestion = forecast_of(scored(same), kl_limit=0.001).suggestion
    assert suggestion.target_kl is not None
    assert suggestion.target_kl[0] > 0.001
    assert any("forbids" in reason for reason in suggestion.reasons)


@pytest.mark.parametrize("gold_of", [opposite, unrelated])
def test_no_range_is_suggested_where_no_kl_would_help(gold_of) -> None:
    suggestion = forecast_of(scored(gold_of)).suggestion
    assert suggestion.beta is None
    assert suggestion.target_kl is None
    assert len(suggestion.reasons) == 1


def test_beta_falls_with_kl_inside_and_beyond_what_the_tilt_shows() -> None:
    found = forecast_of(scored(same, samples=256))
    tilt, best_of_n = found.curve("tilt"), found.curve("best-of-n")
    kls = (0.05, 0.5, 1.0, 2.0, 3.0, 8.0)
    betas = [beta_at(kl, tilt, best_of_n) for kl in kls]
    assert betas == sorted(betas, reverse=True)
    for kl, beta in zip(kls[:4], betas[:4], strict=True):
        assert beta == pytest.approx(1 / math.sqrt(2 * kl), rel=0.2)


def test_more_completions_are_asked_for_the_further_one_looks() -> None:
    needed = forecast_of(scored(same)).needed
    assert [need.kl_seq for need in needed] == sorted(need.kl_seq for need in needed)
    assert [need.tilt for need in needed] == sorted(need.tilt for need in needed)
    two = next(need for need in needed if need.kl_seq == 2.0)
    # Normal rewards: 10 · e^(2 · 2) = 546 for the middle prompt; nine in ten need more.
    assert 400 < two.tilt < 2500
    assert two.best_of_n == 20


def test_a_sample_too_small_for_any_beta_still_gives_an_answer() -> None:
    found = forecast_of(scored(same, samples=8))
    assert len(found.curve("tilt").points) == 1
    assert found.suggestion.beta is not None
    assert all(math.isfinite(bound) for bound in found.suggestion.beta)
