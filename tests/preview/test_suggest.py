from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from preview_case import forecast_of, hump, opposite, same, scored, unrelated

from kltune.preview.result import Verdict
from kltune.preview.suggest import Search, beta_at


def test_the_suggested_ranges_hold_the_peak() -> None:
    found = forecast_of(scored(hump, samples=512), kl_unit="sequence")
    assert found.suggestion.target_kl is not None
    assert found.suggestion.beta is not None
    low, high = found.suggestion.target_kl
    assert low is not None
    assert high is not None
    assert low < 0.5 < high
    low, high = found.suggestion.beta
    assert low is not None
    assert high is not None
    assert low < 1.0 < high  # normal rewards: KL 1 / (2 beta²) = 0.5 at beta 1


def test_target_kl_is_in_the_unit_of_the_spec() -> None:
    data = scored(hump, samples=512)
    by_token = forecast_of(data).suggestion.target_kl
    by_sequence = forecast_of(data, kl_unit="sequence").suggestion.target_kl
    assert by_token is not None
    assert by_sequence is not None
    assert by_token[1] is not None
    assert by_sequence[1] is not None
    assert by_token[1] == pytest.approx(by_sequence[1] / 10, rel=0.1)  # 10 tokens per completion


def test_target_kl_ends_at_the_limit_of_the_objective() -> None:
    suggestion = forecast_of(scored(hump, samples=512), kl_limit=0.15).suggestion
    assert suggestion.target_kl is not None
    assert suggestion.target_kl[1] == 0.15
    assert any("kl_limit" in reason for reason in suggestion.reasons)


def test_a_limit_below_the_range_is_said_and_changes_nothing() -> None:
    suggestion = forecast_of(scored(same), kl_limit=0.001).suggestion
    assert suggestion.target_kl is not None
    assert suggestion.target_kl[0] is not None
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
    assert two.best_of_n is None  # 64 completions show 3.2 nats by best-of-n
    four = next(need for need in needed if need.kl_seq == 4.0)
    assert four.best_of_n == 148


@pytest.mark.parametrize("samples", [8, 12, 16, 24, 32, 64, 100, 128, 200, 256])
def test_no_count_that_is_there_already_is_said_to_show_more(samples: int) -> None:
    found = forecast_of(scored(same, samples=samples))
    assert all(need.tilt > samples for need in found.needed)
    assert all(need.best_of_n is None or need.best_of_n > samples for need in found.needed)
    assert all(need.kl_seq > found.curve("tilt").seen_kl_seq for need in found.needed)


def test_completions_that_other_policies_drew_too_give_no_count() -> None:
    pooled = replace(scored(same, samples=48), num_reference=16, log_density_PN=np.zeros((48, 48)))
    assert forecast_of(pooled).needed == ()


def test_a_sample_too_small_for_any_beta_still_gives_an_answer() -> None:
    found = forecast_of(scored(same, samples=8))
    assert len(found.curve("tilt").points) == 1
    assert found.suggestion.beta is not None
    low, high = found.suggestion.beta
    assert low is None
    assert high is not None
    assert math.isfinite(high)


KITCHEN = Search("token", 0.5, beta=(0.01, 10.0), target_kl=(0.02, 0.5))


@pytest.mark.parametrize("samples", [8, 16, 64, 256])
def test_where_gold_still_rises_the_side_that_was_not_seen_stays_the_specs(samples: int) -> None:
    found = forecast_of(scored(same, samples=samples), search=KITCHEN)
    assert found.reading.verdict is Verdict.RISES
    beta, target = found.suggestion.beta, found.suggestion.target_kl
    assert beta is not None
    assert target is not None
    assert (beta[0], target[1]) == (0.01, 0.5)
    assert target[0] is not None
    assert target[0] >= 0.02  # a rise never widens what the spec searches
    for which in ("lower end of beta", "upper end of target_kl"):
        words = f"{which}: kept from the spec: the sample ends before gold turns"
        assert words in found.suggestion.reasons


def test_what_was_seen_to_rise_narrows_the_side_that_was_seen() -> None:
    found = forecast_of(scored(same, samples=256), search=KITCHEN).suggestion
    assert found.beta is not None
    assert found.target_kl is not None
    assert found.beta[1] is not None
    assert found.beta[1] < 2
    assert found.target_kl[0] is not None
    assert found.target_kl[0] > 0.05


def test_without_a_range_in_the_spec_nothing_is_suggested_for_the_unseen_end() -> None:
    found = forecast_of(scored(same, samples=256)).suggestion
    assert found.beta is not None
    assert found.target_kl is not None
    assert (found.beta[0], found.target_kl[1]) == (None, None)
    assert any("upper end of target_kl: none is suggested" in text for text in found.reasons)


def test_a_range_of_the_spec_below_all_that_was_seen_to_rise_is_left_whole() -> None:
    search = replace(KITCHEN, target_kl=(0.001, 0.004))
    found = forecast_of(scored(same, samples=256), search=search).suggestion
    assert found.target_kl == (0.001, 0.004)
    assert any("above its whole range: set it by hand" in text for text in found.reasons)


def test_rl_that_goes_further_is_not_cut_short() -> None:
    data = scored(hump, samples=512)
    wide = replace(KITCHEN, kl_limit=None, beta=(1e-4, 10.0), target_kl=(1e-3, 5.0))
    plain = forecast_of(data, search=wide).suggestion
    better = forecast_of(data, search=wide, train=scored(same, seed=1)).suggestion
    assert plain.beta is not None
    assert plain.target_kl is not None
    assert plain.target_kl[1] is not None
    assert plain.target_kl[1] < 5
    assert better.target_kl == (plain.target_kl[0], 5.0)
    assert better.beta == (1e-4, plain.beta[1])
    assert any("RL goes further than this forecast" in text for text in better.reasons)
    narrow = replace(wide, beta=(0.5, 10.0), target_kl=(1e-3, 0.06))
    wider = forecast_of(data, search=narrow, train=scored(same, seed=1)).suggestion
    assert wider == replace(plain, reasons=wider.reasons)  # what was seen still widens
