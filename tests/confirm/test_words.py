"""Sentences that need no statistics, every number with its unit."""

from __future__ import annotations

from dataclasses import replace

from confirm_case import judged, result_of

from kltune.confirm import words
from kltune.confirm.design import Arm
from kltune.spec.trial import KLUnit, TrialSpec


def test_headlines() -> None:
    stays = words.headline(result_of(judged([2.0, 1.0, 0.0, 0.0])))
    assert stays == (
        "The winner stays: on 8 fresh seeds and 32 test prompts, trial 4: k2-loss 0.1 is better than every "
        "other setting here."
    )
    changes = words.headline(result_of(judged([1.0, 2.0, 0.0, 0.0])))
    assert changes.startswith("The winner changes to trial 5: k2-loss 0.2: on 8 fresh seeds")
    assert "its gold is 0.9" in changes or "its gold is 1.0" in changes
    tied = words.headline(result_of(judged([1.0, 1.0, 0.0, 0.0])))
    assert "can't be told apart from trial 5: k2-loss 0.2." in tied
    assert "It is better than trial 0: recipe a." in tied


def test_the_best_recipe_the_luck_and_what_could_be_seen_are_said_in_gold() -> None:
    result = result_of(judged([1.0, 0.9, 0.5, 0.0]))
    recipe = words.recipe_words(result)
    assert recipe is not None
    assert "gold (95 % interval" in recipe
    assert "trial 0: recipe a" in recipe
    luck = words.luck_words(result)
    assert luck is not None
    assert "the search said 1.200 gold" in luck
    assert "after shrinkage" in luck
    assert "a drop of 0." in luck
    arms = (*result.arms[:-1], replace(result.arms[-1], select_gold=0.1))
    net = words.luck_words(replace(result, arms=arms))
    assert net is not None
    assert "where the search saw +1.100" in net
    assert "8 of 10" in words.least_words(result)
    assert words.recipe_words(result_of(judged([1.0, 0.9]))) is None


def test_settings_above_the_kl_limit_are_named_with_how_often() -> None:
    result = result_of(judged([1.0, 0.9, 0.5, 0.0]))
    assert words.kl_words(result) is None
    arms = (replace(result.arms[0], over_limit=3), *result.arms[1:])
    told = words.kl_words(replace(result, arms=arms))
    assert (
        told
        == "above the KL limit of 0.5 nats/token at the stop: trial 4: k2-loss 0.1 (3 of 8 seeds)"
    )


def test_names() -> None:
    setting = TrialSpec(beta=0.0, learning_rate=1e-3)
    assert (
        words.arm_name(Arm(3, "baseline", "zero", setting, 20), KLUnit.TOKEN)
        == "trial 3: no KL (beta 0)"
    )
    named = words.arm_name(Arm(1, "baseline", "baseline:verl-ppo", setting, 20), KLUnit.TOKEN)
    assert named.startswith("trial 1: recipe verl-ppo")
    assert (
        words.arm_name(Arm(None, "start", "start", setting, 0), KLUnit.TOKEN) == "untrained start"
    )
