from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import stats

from kltune.statistics.ties import Groups, tie_groups
from kltune.statistics.variance import Component, NoiseFloor, noise_floor

PROMPTS = 64
DRAWS = 150
EQUAL = (0.0,) * 10
SPREAD = tuple(np.linspace(0, 1, 10))
TWO_BEST = (0.6, 0.6, *([0.0] * 8))
TRUTHS = {"equal": EQUAL, "spread": SPREAD, "two best": TWO_BEST}


def noise(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    """Variance about 1: normal, heavy-tailed, or of a few values as gold is."""
    if kind == "normal":
        return rng.standard_normal(shape)
    if kind == "heavy":
        return rng.standard_t(3, shape) / np.sqrt(3)
    values = rng.choice([-2, 0, 1, 1.75], p=[0.15, 0.35, 0.3, 0.2], size=shape)
    return (values - 0.35) / 1.15


def draw(
    rng: np.random.Generator, truth: tuple[float, ...], kind: str, seed_sd: float, num_seeds: int
) -> Groups:
    """Settings with prompts in common, one seed each; the first one on ``num_seeds`` more."""
    means = np.array(truth)[:, None]
    prompts = 0.6 * noise(rng, kind, 1, PROMPTS)
    seeds = seed_sd * rng.standard_normal((len(truth), 1))
    scores = means + seeds + prompts + 0.6 * noise(rng, kind, len(truth), PROMPTS)
    floor = None
    if num_seeds:
        own = seed_sd * rng.standard_normal((num_seeds, 1)) + 0.6 * noise(
            rng, kind, num_seeds, PROMPTS
        )
        floor = noise_floor(truth[0] + prompts + own)
    return tie_groups(scores, floor=floor, seed=1)


def false_claims(truth: tuple[float, ...], groups: Groups) -> dict[str, bool]:
    """Which kinds of claim are wrong, knowing the truth."""
    means = np.array(truth)
    parts = [list(group) for group in groups.groups]
    best = set(np.flatnonzero(means == means.max()))
    above = [(n, i) for n in range(len(parts)) for part in parts[n + 1 :] for i in part]
    below = means.max() - means
    return {
        "a best setting in a lower group": not best <= set(parts[0]),
        "a worse setting named better": any(means[i] >= means[parts[n]].max() for n, i in above),
        "a gap that is none": any(
            groups.is_gap[n] and means[i] >= means[parts[n]].min() for n, i in above
        ),
        "the best further above than said": bool((below > np.array(groups.most_below_best)).any()),
    }


def check_rates(count: dict[str, int], draws: int, about: str) -> None:
    """Fail where so many would have a chance below 1 in 1,000 if the rate were 5 %."""
    most = int(stats.binom.ppf(0.999, draws, 0.05))
    for claim, times in count.items():
        assert times <= most, f"{about}: {claim} in {times} of {draws} draws, at most {most} at 5 %"


@pytest.mark.parametrize("kind", ["normal", "heavy", "of few values"])
@pytest.mark.parametrize("truth", TRUTHS)
def test_a_false_winner_is_named_in_at_most_5_percent_of_the_draws(truth: str, kind: str) -> None:
    rng = np.random.default_rng(11)
    count: dict[str, int] = {}
    for _ in range(DRAWS):
        for claim, is_false in false_claims(
            TRUTHS[truth], draw(rng, TRUTHS[truth], kind, 0, 0)
        ).items():
            count[claim] = count.get(claim, 0) + is_false
    check_rates(count, DRAWS, f"{truth}, {kind}")


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
@pytest.mark.parametrize("seed_sd", [0.0, 0.1, 0.4])
def test_the_seeds_noise_names_no_false_winner_either(num_seeds: int, seed_sd: float) -> None:
    rng = np.random.default_rng(12)
    count: dict[str, int] = {}
    for _ in range(DRAWS):
        groups = draw(rng, EQUAL, "normal", seed_sd, num_seeds)
        for claim, is_false in false_claims(EQUAL, groups).items():
            count[claim] = count.get(claim, 0) + is_false
    check_rates(count, DRAWS, f"{num_seeds} seeds of sd {seed_sd}")


def test_three_seeds_widen_every_interval_even_where_their_noise_came_out_small() -> None:
    rng = np.random.default_rng(22)
    scores = noise(rng, "normal", 4, PROMPTS)
    nothing = Component(0.0, 0.0, 0.0)
    three, ten = (NoiseFloor(n, PROMPTS, *[nothing] * 3, seed_square=1e-6) for n in (3, 10))
    assert (
        tie_groups(scores, floor=three).half_width[0, 1]
        > 2 * (tie_groups(scores, floor=ten).half_width[0, 1])
    )


def test_without_the_seeds_noise_a_false_winner_would_be_the_rule() -> None:
    rng = np.random.default_rng(13)
    wrong = sum(
        false_claims(EQUAL, draw(rng, EQUAL, "normal", 0.4, 0))["a worse setting named better"]
        for _ in range(30)
    )
    assert wrong > 20


def test_ties_are_found_where_they_are_and_differences_too() -> None:
    rng = np.random.default_rng(14)
    found = [draw(rng, TWO_BEST, "normal", 0, 0).groups[0] for _ in range(DRAWS)]
    with_both = sum({0, 1} <= set(first) for first in found)
    alone = sum(first == (0, 1) for first in found)
    least = int(stats.binom.ppf(1e-3, DRAWS, 0.95))
    assert with_both >= least, f"both best in the first group in {with_both} of {DRAWS}"
    assert alone >= 0.6 * DRAWS, f"and nothing else in {alone} of {DRAWS}"


def test_a_clear_gap_is_said_and_an_overlap_is_not() -> None:
    rng = np.random.default_rng(15)
    clear = draw(rng, (2.0, 2.0, 0.0, 0.0), "normal", 0, 0)
    assert (clear.groups, clear.is_gap) == (((0, 1), (2, 3)), (True,))
    chained = draw(rng, tuple(np.linspace(0, 1, 12)), "normal", 0, 0)
    assert len(chained.groups) > 1
    assert not chained.is_gap[0]


def test_a_group_is_in_the_order_of_the_settings_whatever_their_values() -> None:
    rng = np.random.default_rng(16)
    for _ in range(10):
        for group in draw(rng, SPREAD, "normal", 0, 0).groups:
            assert list(group) == sorted(group)


def test_every_setting_is_in_one_group() -> None:
    groups = draw(np.random.default_rng(17), SPREAD, "normal", 0, 0)
    assert sorted(i for group in groups.groups for i in group) == list(range(10))


def test_prompts_without_a_spread_tell_nothing_apart() -> None:
    scores = np.random.default_rng(18).standard_normal((1, PROMPTS)) + np.array([[0.0], [5.0]])
    assert tie_groups(scores).groups == ((0, 1),)
    scores = np.zeros((2, PROMPTS))
    scores[1, :2] = 900.0, 901.0
    assert tie_groups(scores).groups == ((0, 1),)


def test_the_same_setting_twice_does_not_hide_the_others_differences() -> None:
    rng = np.random.default_rng(21)
    scores = rng.standard_normal((3, PROMPTS)) + np.array([[0.0], [0.0], [1.2]])
    alone, twice = tie_groups(scores), tie_groups(scores[[0, 0, 1, 2]])
    assert alone.groups == ((2,), (0, 1))
    assert twice.groups == ((3,), (0, 1, 2))
    assert twice.half_width[0, 1] == 0


def test_values_that_are_no_plain_means_are_what_is_compared() -> None:
    rng = np.random.default_rng(19)
    scores = rng.standard_normal((2, PROMPTS))
    assert tie_groups(scores, np.array([0.0, 9.0])).groups == ((1,), (0,))


@pytest.mark.parametrize("num", [0, 1])
def test_one_setting_or_none_is_no_comparison(num: int) -> None:
    found = tie_groups(np.ones((num, PROMPTS)))
    assert found.groups == ((0,),) * num


@pytest.mark.parametrize("scores", [np.ones((3, 1)), np.full((3, 9), np.nan), np.ones(9)])
def test_scores_that_say_nothing_are_refused(scores: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite scores"):
        tie_groups(scores)


@pytest.mark.slow
def test_a_thousand_settings_take_less_than_3_seconds() -> None:
    rng = np.random.default_rng(20)
    scores = 0.3 * rng.standard_normal((1000, 1)) + rng.standard_normal((1000, PROMPTS))
    start = time.process_time()
    tie_groups(scores)
    assert time.process_time() - start < 3
