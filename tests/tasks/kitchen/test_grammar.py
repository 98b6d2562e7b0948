"""Answers are made of sentences that the rubric can name again."""

from __future__ import annotations

import random

import pytest

from kltune.tasks.kitchen.foods import BY_NAME, FOODS
from kltune.tasks.kitchen.grammar import (
    TIPS,
    answer,
    kind_of,
    sentences_of,
    stated_minutes,
    time_sentence,
)


def test_no_sentence_of_the_grammar_is_broken() -> None:
    rng = random.Random(0)
    for food in FOODS * 10:
        kinds = {kind_of(sentence, food) for sentence in sentences_of(answer(food, rng))}
        assert "broken" not in kinds


def test_the_same_seed_gives_the_same_answers() -> None:
    first, second = random.Random(3), random.Random(3)
    assert [answer(f, first) for f in FOODS] == [answer(f, second) for f in FOODS]


def test_every_kind_of_answer_turns_up() -> None:
    rng = random.Random(0)
    food = BY_NAME["eggs"]
    kinds = {kind_of(s, food) for _ in range(200) for s in sentences_of(answer(food, rng))}
    assert kinds == {"time", "tip", "filler", "vague", "boast"}


def test_every_way_of_cooking_has_a_tip_that_fits() -> None:
    fitting = frozenset[str]().union(*TIPS.values())
    assert {food.method for food in FOODS} == fitting


@pytest.mark.parametrize("wording", range(3))
def test_a_stated_time_is_read_back(wording: int) -> None:
    food = BY_NAME["eggs"]
    assert stated_minutes(time_sentence(food, wording)) == (food.low, food.high)


def test_a_last_piece_without_a_full_stop_is_kept() -> None:
    assert sentences_of("It depends. Salt the") == ["It depends.", "Salt the"]
