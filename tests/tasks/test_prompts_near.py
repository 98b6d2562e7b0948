from __future__ import annotations

import random

import pytest

from kltune.tasks.prompts_near import NearPair, near_pairs
from kltune.tasks.protocol import Prompt

LONG = "a train leaves the old station at nine and arrives in the next town two hours later how fast was it"


def near(one: str, two: str) -> float | None:
    pairs = near_pairs([Prompt("1", one)], [Prompt("2", two)])
    return pairs[0].share if pairs else None


def test_punctuation_case_and_spaces_make_no_difference() -> None:
    assert near("What's  for dinner, then?", "what s for dinner then") == 1.0
    assert near("Hi!", "hi") == 1.0


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("What is 2+2?", "What is 2-2?"),
        ("Add 12 and 30.", "Add 12 and 31."),
        ("Write a poem about cats", "Write a poem about dogs"),
        ("hi", "ho"),
    ],
)
def test_short_prompts_that_ask_for_something_else_are_not_near(one: str, two: str) -> None:
    assert near(one, two) is None


def test_one_changed_word_in_a_long_prompt_is_near_by_its_share_of_runs() -> None:
    words = LONG.split()
    # 21 words have 19 runs; the last word is in one of them: 18 of 20 are shared.
    assert len(words) == 21
    assert near(LONG, " ".join([*words[:-1], "she"])) == pytest.approx(18 / 20)
    # A word in the middle is in three: 16 of 22.
    assert near(LONG, LONG.replace("nine", "ten")) is None


def test_scripts_without_spaces_are_compared_sign_by_sign() -> None:
    one = "今日の天気はどうですか教えてください"
    assert near(one, one + "ね") is not None
    assert near(one, "明日の電車は何時に出発するのか知りたい") is None


def test_a_frame_around_every_question_does_not_make_them_near() -> None:
    frame = "you are a careful helper please think step by step and then answer the question below"
    rng = random.Random(0)
    prompts = [
        Prompt(str(i), f"{frame}: {' '.join(rng.choices('abcdefghijklmnop', k=4))}?")
        for i in range(200)
    ]
    found = near_pairs(prompts[:100], [*prompts[100:], Prompt("x", prompts[7].text + " !")])
    assert [pair.first for pair in found if pair.second == 100] == [7]
    assert len(found) < 5


def test_no_pair_is_missed() -> None:
    rng = random.Random(1)

    def text() -> str:
        return " ".join(rng.choices("abcdefgh", k=rng.randint(3, 14)))

    first = [Prompt(str(i), text()) for i in range(120)]
    second = [Prompt(str(i), text()) for i in range(15)]
    second += [Prompt(f"c{i}", " ".join(first[i].text.split()[1:])) for i in range(0, 120, 9)]
    alone = [near_pairs([one], [two]) for one in first for two in second]
    pairs = [
        (i, j) for i in range(len(first)) for j in range(len(second)) if alone[i * len(second) + j]
    ]
    firsts = {i: next(j for i_, j in pairs if i_ == i) for i, _ in pairs}
    found = near_pairs(first, second)
    assert {pair.first: pair.second for pair in found} == firsts
    assert len(found) > 5


def test_the_first_of_the_later_prompts_is_named() -> None:
    later = [Prompt("1", "x"), Prompt("2", LONG), Prompt("3", LONG)]
    assert near_pairs([Prompt("0", LONG.upper())], later) == [NearPair(0, 1, 1.0)]
