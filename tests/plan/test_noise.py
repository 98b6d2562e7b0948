from __future__ import annotations

from dataclasses import replace

import pytest

from kltune.plan.noise import NAMES, SEED_SHARES, Measured, SeedNoise, scenarios, unknowns

PAIRED = Measured("here", 64, 2, pair=0.5, num_settings=20, sample=0.6)


def test_what_was_measured_is_planned_for_alone() -> None:
    seeds = SeedNoise(0.01, 0.4, 0.1, 0.2, "2 settings on 9 seeds", 40)
    (one,) = scenarios(replace(PAIRED, seeds=seeds))
    assert one.is_measured
    assert (one.noise.seed, one.noise.seed_correlation, one.noise.sample) == (0.01, 0.4, 0.6)
    assert unknowns(replace(PAIRED, seeds=seeds)) == ()


def test_seeds_that_were_never_repeated_are_a_stated_range_and_said_so() -> None:
    found = scenarios(PAIRED)
    assert tuple(s.name for s in found) == NAMES
    error = 0.5 / 2 / 64  # of one setting's gold, squared
    assert [s.noise.seed for s in found] == pytest.approx(
        [share**2 * error for share in SEED_SHARES]
    )
    assert "Seed variance not measured" in unknowns(PAIRED)[-1]


def test_samples_and_prompts_add_up_to_the_measured_pair() -> None:
    for scenario in scenarios(PAIRED):
        noise = scenario.noise
        assert noise.prompt + noise.sample / PAIRED.samples == pytest.approx(0.5)


def test_unknown_samples_are_taken_as_prompts() -> None:
    alone = replace(PAIRED, sample=None)
    assert scenarios(alone)[0].noise.prompt == pytest.approx(0.5)
    assert any("samples of one prompt" in text for text in unknowns(alone))


def test_one_policy_alone_gives_a_range_for_the_prompts_too() -> None:
    pilot = Measured("the reference", 32, 2, None, 1, 0.6, between=0.2)
    found = scenarios(pilot)
    assert [s.noise.prompt for s in found] == pytest.approx([0.0, 0.2, 0.4])
    assert "No two settings" in unknowns(pilot)[0]


def test_nothing_known_is_an_error() -> None:
    with pytest.raises(ValueError, match="no gold by prompt"):
        scenarios(Measured("nothing", 1, 1, None, 0, None))


def test_seed_noise_of_few_runs_is_called_rough() -> None:
    few = SeedNoise(0.01, 0.4, 0.1, 0.2, "2 settings on 3 seeds", 2)
    assert "rests on few runs" in unknowns(replace(PAIRED, seeds=few))[0]
    low, high = few.factors()
    assert low < 1 < high
