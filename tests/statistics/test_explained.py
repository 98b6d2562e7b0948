from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from kltune.statistics.explained import LEVEL, Drawn, Explained, WhyNot, explain

NOISE = 0.06
"""Standard deviation of a made-up trial's value: kitchen studies of 80 steps have about as much."""

Settings = dict[str, float | str]


def draw(rng: np.random.Generator) -> Settings:
    """A setting from the space of the example study: two parameters only where there is a controller."""
    setting: Settings = {
        "beta": float(rng.uniform(math.log(0.01), math.log(10))),
        "penalty": str(rng.choice(["k1-reward", "k2-loss", "k3-loss"])),
        "controller": str(rng.choice(["fixed", "proportional"])),
    }
    if setting["controller"] == "proportional":
        setting["target_kl"] = float(rng.uniform(math.log(0.02), math.log(0.5)))
        setting["horizon"] = float(rng.uniform(math.log(50), math.log(6000)))
    return setting


def made_up(count: int, truth: Callable[[Settings], float], seed: int) -> tuple[Explained, ...]:
    rng = np.random.default_rng(seed)
    settings = [draw(rng) for _ in range(count)]
    worth = [truth(setting) + NOISE * rng.standard_normal() for setting in settings]
    names = ("beta", "penalty", "controller", "target_kl", "horizon")
    return explain([Drawn(n, [s.get(n) for s in settings]) for n in names], worth)  # pyright: ignore[reportArgumentType]


def found(parameters: tuple[Explained, ...]) -> list[str]:
    return [p.name for p in parameters if p.is_found]


def falls_with_beta(setting: Settings) -> float:
    """A plateau, then the penalty holds the policy where it began."""
    return 1.05 - 0.1 * max(0.0, float(setting["beta"]) - math.log(0.3)) ** 1.5


def best_target(setting: Settings) -> float:
    if "target_kl" not in setting:
        return 0.9
    return 1.0 - 0.12 * (float(setting["target_kl"]) - math.log(0.1)) ** 2


def nothing(_setting: Settings) -> float:
    return 1.0


@pytest.mark.parametrize(("count", "share"), [(12, 0.8), (24, 0.95), (100, 1.0)])
def test_where_only_beta_matters_it_is_named_first(count: int, share: float) -> None:
    studies = [made_up(count, falls_with_beta, seed) for seed in range(10)]
    assert sum(found(s)[:1] == ["beta"] for s in studies) >= share * len(studies)
    # and what comes after it is chance, as often as chance may
    assert sum(len(found(s)) > 1 for s in studies) <= 2


@pytest.mark.parametrize(("count", "share"), [(24, 0.6), (100, 1.0)])
def test_a_target_that_only_some_trials_have_is_found_among_those(count: int, share: float) -> None:
    studies = [made_up(count, best_target, seed) for seed in range(10)]
    assert sum("target_kl" in found(s) for s in studies) >= share * len(studies)
    for parameters in studies:
        (target,) = [p for p in parameters if p.name == "target_kl"]
        assert target.num_used < count
    assert sum(bool(set(found(s)) & {"beta", "penalty", "horizon"}) for s in studies) <= 2


@pytest.mark.parametrize("count", [8, 12, 24])
def test_where_nothing_matters_a_parameter_is_named_as_seldom_as_promised(count: int) -> None:
    num_studies = 40
    named = sum(bool(found(made_up(count, nothing, seed))) for seed in range(num_studies))
    # Binomial: more than this happens once in a thousand.
    assert named <= num_studies * LEVEL + 3.1 * math.sqrt(num_studies * LEVEL * (1 - LEVEL))


def test_what_goes_along_with_a_cause_is_not_named_beside_it() -> None:
    rng = np.random.default_rng(1)
    cause = rng.normal(size=24)
    shadow = cause + 0.7 * rng.normal(size=24)  # a sampler that narrows both draws them so
    worth = -(cause**2) - cause + 0.1 * rng.normal(size=24)
    drawn = [Drawn("shadow", list(shadow)), Drawn("cause", list(cause))]
    assert found(explain(drawn, list(worth))) == ["cause"]
    alone = explain(drawn[:1], list(worth))
    assert found(alone) == ["shadow"]  # it would be, without the cause


def test_the_share_is_that_of_the_variance_and_the_second_is_what_it_adds() -> None:
    rng = np.random.default_rng(2)
    first, second, noise = rng.normal(size=(3, 1000))
    worth = 2 * first + second + noise
    one, two = explain([Drawn("second", list(second)), Drawn("first", list(first))], list(worth))
    assert (one.name, two.name) == ("first", "second")
    assert one.share == pytest.approx(4 / 6, abs=0.05)
    assert two.share == pytest.approx(1 / 6, abs=0.05)


def test_what_cannot_be_fitted_says_why() -> None:
    rng = np.random.default_rng(3)
    beta = list(rng.normal(size=12))
    few: list[float | None] = [*beta[:5], *[None] * 7]
    drawn = [
        Drawn("beta", beta),
        Drawn("same", ["a"] * 12),
        Drawn("few", few),
        Drawn("twin", [2 * value for value in beta]),
    ]
    found = {p.name: p for p in explain(drawn, [-value for value in beta[:11]] + [0.0])}
    assert found["same"].why_not is WhyNot.CONSTANT
    assert found["few"].why_not is WhyNot.FEW
    assert found["few"].num_used == 5
    named = next(name for name in ("beta", "twin") if found[name].is_found)
    other = {"beta": "twin", "twin": "beta"}[named]
    assert found[other].why_not is WhyNot.ALIASED
    assert found[other].share is None


def test_the_same_study_gives_the_same_answer() -> None:
    assert made_up(24, best_target, 5) == made_up(24, best_target, 5)


def test_nothing_in_gives_nothing_out() -> None:
    assert explain([], []) == ()
