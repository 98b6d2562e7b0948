from __future__ import annotations

from kltune.spec.recipes import RECIPES
from kltune.spec.trial import ControllerKind


def test_every_recipe_is_known_by_its_own_name() -> None:
    assert all(name == recipe.name for name, recipe in RECIPES.items())
    assert len(RECIPES) >= 10


def test_a_proportional_recipe_is_complete() -> None:
    adaptive = [r for r in RECIPES.values() if r.controller is ControllerKind.PROPORTIONAL]
    assert adaptive
    assert all(r.target_kl_seq and r.horizon and r.beta > 0 for r in adaptive)


def test_a_penalty_in_the_reward_has_beta_in_reward() -> None:
    assert all(r.penalty.in_reward == (r.beta_in == "reward") for r in RECIPES.values())
