"""Every known recipe as a trial of the real trainer, beside each other on one tiny base."""

from __future__ import annotations

import math

import pytest
import tiny

from kltune.spec.recipes import RECIPES, Recipe
from kltune.study.space import fixed_trials
from tests.fake_bank import small_spec

DISTINCT: dict[tuple[object, ...], Recipe] = {
    recipe.setting: recipe for recipe in reversed(list(RECIPES.values()))
}
"""One name of each setting."""


def test_every_recipe_trains_two_steps_at_its_own_price() -> None:
    names = [recipe.name for recipe in DISTINCT.values()]
    scale = tiny.settings().scale
    trials = fixed_trials(small_spec(baselines=names, budget={"trials": len(names)}), scale)
    bank = tiny.bank(len(trials), own_forward=True)
    for slot, trial in enumerate(trials):
        bank.admit(slot, slot, trial.setting, None)
    bank.train_step()
    for step, trial, recipe in zip(bank.train_step(), trials, DISTINCT.values(), strict=True):
        assert trial.origin == f"baseline:{recipe.name}"
        assert step.is_finite
        assert step.kl_token > 0
        price = recipe.beta * (1.0 if recipe.beta_in == "reward" else scale.sigma)
        if recipe.target_kl_seq is None:
            assert step.values["ctrl/beta"] == pytest.approx(price)
        else:  # one step of Ziegler's controller: KL starts below its target, so beta fell
            assert 0 < step.values["ctrl/beta"] < price
            assert step.values["ctrl/target"] == pytest.approx(
                recipe.target_kl_seq / scale.mean_tokens
            )
        assert math.isfinite(step.values["train/loss_kl"])
