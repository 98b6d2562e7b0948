from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from kltune.statistics.variance import noise_floor, shared_noise

Draw = Callable[..., np.ndarray]
SEED_SD, PROMPT_SD, REST_SD = 0.1, 0.6, 0.4
DRAWS = 200


def tails(rng: np.random.Generator, kind: str) -> Draw:
    """Prompts' noise with variance 1: normal, or of Student's t with 6 degrees of freedom."""
    if kind == "normal":
        return lambda *shape: rng.standard_normal(shape)
    return lambda *shape: rng.standard_t(6, shape) / math.sqrt(1.5)


def scores(
    rng: np.random.Generator, kind: str, num_seeds: int, num_prompts: int = 64
) -> np.ndarray:
    draw = tails(rng, kind)
    seeds = SEED_SD * rng.standard_normal((num_seeds, 1))
    return 1 + seeds + PROMPT_SD * draw(1, num_prompts) + REST_SD * draw(num_seeds, num_prompts)


def check(covered: int, draws: int, what: str, rate: float = 0.9) -> None:
    """Fail where so few would be covered with a chance below 1 in 1,000 if the coverage were ``rate``."""
    least = int(stats.binom.ppf(1e-3, draws, rate))
    assert covered >= least, (
        f"{what}: {covered} of {draws} draws covered, at least {least} expected"
    )


@pytest.mark.parametrize("kind", ["normal", "heavy"])
@pytest.mark.parametrize("num_seeds", [3, 8])
def test_the_intervals_cover_the_three_variances(kind: str, num_seeds: int) -> None:
    rng = np.random.default_rng(num_seeds)
    covered = dict.fromkeys(("seed", "prompt", "rest"), 0)
    truth = {"seed": SEED_SD**2, "prompt": PROMPT_SD**2, "rest": REST_SD**2}
    for _ in range(DRAWS):
        floor = noise_floor(scores(rng, kind, num_seeds))
        assert floor is not None
        for name in covered:
            part = getattr(floor, name)
            covered[name] += part.low <= truth[name] <= part.high
    for name, count in covered.items():
        check(count, DRAWS, f"{name}, {kind}, {num_seeds} seeds")


def test_the_estimates_are_right_on_average() -> None:
    rng = np.random.default_rng(1)
    floors = [noise_floor(scores(rng, "normal", 6)) for _ in range(DRAWS)]
    rest = np.mean([f.rest.variance for f in floors if f is not None])
    square = np.mean([f.seed_square for f in floors if f is not None])
    assert rest == pytest.approx(REST_SD**2, rel=0.02)
    assert square == pytest.approx(SEED_SD**2 + REST_SD**2 / 64, rel=0.15)


def test_mean_squares_are_those_of_a_table_reckoned_by_hand() -> None:
    floor = noise_floor(np.array([[1.0, 2.0, 6.0], [3.0, 2.0, 10.0]]))
    assert floor is not None
    assert floor.seed_square == pytest.approx(2.0)  # means 3 and 5
    assert floor.rest.variance == pytest.approx(2.0)  # residuals 0, 1, -1 and back: 4 / 2
    assert floor.prompt.variance == pytest.approx(12.0 - 1.0)  # means 2, 2, 8: 12; less rest / 2
    assert floor.seed.variance == pytest.approx((6.0 - 2.0) / 3)


def test_two_equal_runs_part_by_less_than_the_floor_in_95_of_100_cases() -> None:
    rng = np.random.default_rng(2)
    within = 0
    for _ in range(DRAWS):
        floor = noise_floor(scores(rng, "normal", 5))
        assert floor is not None
        a, b = SEED_SD * rng.standard_normal(2) + REST_SD * rng.standard_normal((64, 2)).mean(
            axis=0
        )
        within += abs(a - b) <= floor.smallest_difference
    check(within, DRAWS, "difference of two runs", rate=0.95)


@pytest.mark.parametrize(
    "table", [np.ones((1, 64)), np.ones((3, 1)), np.array([[1.0, np.nan], [1.0, 2.0]]), np.ones(5)]
)
def test_without_a_repeat_nothing_is_known_of_seeds(table: np.ndarray) -> None:
    assert noise_floor(table) is None


@pytest.mark.parametrize("kind", ["normal", "heavy"])
@pytest.mark.parametrize("truth", [0.0, 0.8])
def test_the_correlations_that_two_settings_share_are_covered(kind: str, truth: float) -> None:
    rng = np.random.default_rng(3)
    draw = tails(rng, kind)
    normal = tails(rng, "normal")

    def pair(how: Draw, *shape: int) -> tuple[np.ndarray, np.ndarray]:
        first, second = how(*shape), how(*shape)
        return first, truth * first + math.sqrt(1 - truth**2) * second

    covered = dict.fromkeys(("prompt", "draw", "seed"), 0)
    for _ in range(DRAWS):
        seeds, prompts, rest = pair(normal, 8, 1), pair(draw, 1, 64), pair(draw, 8, 64)
        a, b = (s + p + 0.3 * r for s, p, r in zip(seeds, prompts, rest, strict=True))
        shared = shared_noise(a, b)
        for name in covered:
            found = getattr(shared, name)
            assert found is not None
            covered[name] += found.low <= truth <= found.high
    for name, count in covered.items():
        check(count, DRAWS, f"correlation of {name}, {kind}")


def test_what_was_not_repeated_is_not_measured() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 1, 64))
    shared = shared_noise(a, b)
    assert shared.prompt is not None
    assert (shared.draw, shared.seed) == (None, None)
    a, b = rng.standard_normal((2, 3, 64))
    assert shared_noise(a, b).seed is None  # three seeds have no interval
    assert shared_noise(a, 0 * b).prompt is None


def test_tables_of_different_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="same seeds and prompts"):
        shared_noise(np.ones((2, 3)), np.ones((2, 4)))
