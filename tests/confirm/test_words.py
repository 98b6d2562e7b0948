"""Sentences that need no statistics, every number with its unit."""

from __future__ import annotations

from dataclasses import replace

from confirm_case import judged, result_of

from kltune.confirm import words
from kltune.confirm.design import Arm
from kltune.confirm.result import ConfirmResult
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
    assert "it lacks 0." in net
    assert "luck of the pick, the single seed and other prompts" in net
    assert "8 of 10" in words.least_words(result)
    assert words.recipe_words(result_of(judged([1.0, 0.9]))) is None


def test_where_test_shows_no_less_than_the_search_nothing_is_said_to_be_missing() -> None:
    result = result_of(judged([2.0, 0.9, 0.5, 0.0]))
    no_start = words.luck_words(result)
    arms = (*result.arms[:-1], replace(result.arms[-1], select_gold=0.1))
    net = words.luck_words(replace(result, arms=arms))
    for text in (no_start, net):
        assert text is not None
        assert text.endswith("nothing of it is missing, so no luck of the pick shows")
        assert "drop" not in text


def with_seeds(*golds: float) -> ConfirmResult:
    """The recommended setting's seeds, over a start at 0.1."""
    one = judged([1.0, 0.9, 0.5, 0.0])
    first, *rest, start = one.places
    places = (replace(first, by_seed=golds), *rest, replace(start, gold=0.1))
    return result_of(replace(one, places=places))


def test_seeds_that_fail_are_counted_by_half_of_the_middle_gain() -> None:
    told = words.seeds_words(with_seeds(0.46, 0.49, 0.93, 0.94, 0.95, 0.96, 1.01, 1.14))
    assert told == (
        "trial 4: k2-loss 0.1: lowest 0.460, highest 1.140 gold of 8 seeds; 2 of 8 end at 0.460 to 0.490 and gain "
        "less than half of what the middle one does over the untrained start"
    )
    even = words.seeds_words(with_seeds(0.9, 1.0, 1.1))
    assert even.endswith(
        "each gains at least half of what the middle one gains over the untrained start"
    )
    assert words.seeds_words(with_seeds(0.0, 0.1, 0.1)).endswith("highest 0.100 gold of 3 seeds")


def test_where_the_winner_changes_its_seeds_are_told_too() -> None:
    told = words.seeds_words(result_of(judged([1.0, 2.0, 0.0, 0.0])))
    assert "trial 4: k2-loss 0.1: lowest" in told
    assert "; trial 5: k2-loss 0.2: lowest" in told


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
