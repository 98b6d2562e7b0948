from __future__ import annotations

import pytest

from kltune.errors import SpecError
from kltune.explain.recipes import RecipesQuestion, explain_recipes
from kltune.spec.recipes import RECIPES, WITHOUT_KL


def test_every_recipe_stands_once_and_those_of_one_setting_together() -> None:
    facts = explain_recipes(RecipesQuestion())
    named = [one.name for setting in facts.settings for one in setting.named]
    assert sorted(named) == sorted(RECIPES)
    for setting in facts.settings:
        assert len({RECIPES[one.name].setting for one in setting.named}) == 1
    assert len(facts.settings) == len({recipe.setting for recipe in RECIPES.values()})
    assert dict(facts.without_kl) == dict(WITHOUT_KL)


@pytest.mark.parametrize(
    ("name", "raw"), [("deepseekmath", 0.04 * 0.25), ("instructgpt", 0.02), ("maths", 0.01 * 0.25)]
)
def test_a_loss_coefficient_becomes_raw_reward_by_sigma_and_a_price_in_reward_stays(
    name: str, raw: float
) -> None:
    (setting,) = explain_recipes(RecipesQuestion(name, sigma_r=0.25)).settings
    assert setting.beta_reward == pytest.approx(raw)


def test_a_target_per_answer_is_also_told_per_token() -> None:
    # Test oracle O7 of kl-reference.md: 6 nats per sequence at 24 tokens are 0.25 nats per token.
    (setting,) = explain_recipes(RecipesQuestion("ziegler-sentiment", tokens=24)).settings
    assert (setting.target_kl_seq, setting.target_kl_token) == (6.0, 0.25)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (RecipesQuestion("verl"), "NAME: unknown recipe 'verl'; did you mean verl-ppo"),
        (RecipesQuestion("dapo"), "NAME: dapo trains without a KL"),
        (RecipesQuestion(sigma_r=0), "--sigma-r: must be above 0"),
        (RecipesQuestion(tokens=float("nan")), "--tokens: must be above 0"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(question: RecipesQuestion, told: str) -> None:
    with pytest.raises(SpecError) as error:
        explain_recipes(question)
    assert str(error.value).startswith(told)
