"""The rubric says what a cook would say."""

from __future__ import annotations

import pytest

from kltune.tasks.kitchen.foods import BY_NAME, FOODS
from kltune.tasks.kitchen.gold import FITTING_TIP, RIGHT_TIME, KitchenGold, is_right, rubric
from kltune.tasks.protocol import Prompt, Sample

RICE = BY_NAME["white rice"]
PERFECT = "It takes 15 to 18 minutes. Salt the water."


def score(text: str, *, ended: bool = True) -> float:
    return rubric(text, RICE, ended=ended)


def test_the_right_time_and_one_fitting_tip_are_the_best_answer() -> None:
    assert score(PERFECT) == RIGHT_TIME + FITTING_TIP


@pytest.mark.parametrize(
    "worse",
    [
        "It takes 15 to 18 minutes.",
        "It takes 15 to 18 minutes. Use a hot pan.",
        "It takes 35 to 40 minutes. Salt the water.",
        "It takes 15 to 18 minutes. It takes 35 to 40 minutes. Salt the water.",
        "Cook until done. Salt the water.",
        "I am happy to help. It takes 15 to 18 minutes. Salt the water.",
        "It takes 15 to 18 minutes. Salt the water. Trust me on this.",
        "It takes 15 to 18 minutes. Salt the water. Drain well.",
        "It takes 15 to 18 minutes. Salt the water. Salt the water.",
        "It takes 15 to 18 minutes. It takes 15 to 18 minutes. Salt the water.",
        "takes 15 to 18 minutes. Salt the water.",
        "It takes 15 to 18 minutes. Salt the",
        "It takes 18 to 15 minutes. Salt the water.",
        "",
    ],
)
def test_any_fault_costs(worse: str) -> None:
    assert score(worse) < score(PERFECT)


def test_an_answer_cut_at_the_limit_costs_even_after_a_full_stop() -> None:
    assert score(PERFECT, ended=False) < score(PERFECT)


def test_a_wrong_time_is_worse_than_a_vague_answer() -> None:
    assert score("It takes 35 to 40 minutes.") < score("Cook until done.")


def test_each_further_tip_costs_more() -> None:
    one, two = "It takes 15 to 18 minutes. Salt the water.", " Drain well."
    assert score(one) > score(one + two) > score(one + two + " Keep the lid on.")


def test_filler_about_another_food_is_no_sentence_of_this_answer() -> None:
    assert score("Many people love pizza.") < score("Many people love white rice.")


def test_every_food_has_a_right_time_of_its_own() -> None:
    assert all(is_right((food.low, food.high), food) for food in FOODS)


def test_the_scorer_reads_the_food_from_the_prompt_and_keeps_the_order() -> None:
    def sample(food: str) -> Sample:
        prompt = Prompt(id=food, text="How long?", columns={"food": food})
        return Sample(prompt=prompt, text=PERFECT, token_ids=(), ended=True)

    for_rice, for_lobster = KitchenGold()([sample("white rice"), sample("lobster")])
    assert for_rice == RIGHT_TIME + FITTING_TIP
    assert for_lobster < for_rice
