from __future__ import annotations

from dataclasses import replace

import pytest
import soundness_case as case

from kltune.check.splits import splits_line
from kltune.grade import Grade
from kltune.tasks.kitchen import task as kitchen
from kltune.tasks.protocol import Prompt, Splits


def split(name: str, *texts: str) -> tuple[Prompt, ...]:
    return tuple(Prompt(f"{name}-{i}", text) for i, text in enumerate(texts))


def splits(train: tuple[str, ...], select: tuple[str, ...], test: tuple[str, ...]) -> Splits:
    return Splits(split("train", *train), split("select", *select), split("test", *test))


def many(name: str, num: int = 7) -> tuple[str, ...]:
    return tuple(f"{name} {i}" for i in range(num))


def test_the_built_in_task_shares_nothing() -> None:
    line = splits_line(kitchen.splits())
    assert line.grade is Grade.PASS
    assert line.numbers["num_same"] == line.numbers["num_near"] == 0


@pytest.mark.parametrize("other", ["Boil rice?", "boil  RICE?", " Boil\nrice? "])
def test_the_same_words_in_two_splits_fail(other: str) -> None:
    line = splits_line(splits(("Boil rice?", "a"), ("b", "c"), ("d", other)))
    assert line.grade is Grade.FAIL
    assert line.numbers["num_same"] == 1
    assert "'Boil rice?' (train-0) in train and test" in line.shown


def test_other_punctuation_warns() -> None:
    line = splits_line(splits(("Boil rice?", "a"), ("boil, rice", "c"), ("d", "e")))
    assert line.grade is Grade.WARN
    assert line.numbers["num_near"] == 1
    assert "'Boil rice?' (train-0) in train and select" in line.shown


def test_prompts_of_signs_alone_are_compared_as_they_are() -> None:
    given = splits(("?!", "a"), ("!?", *many("c")), many("d", 8))
    assert splits_line(given).grade is Grade.PASS


def test_too_few_select_or_test_prompts_for_an_interval_warn_with_number_and_remedy() -> None:
    line = splits_line(splits(("a",), many("b", 2), many("c", 7)))
    assert line.grade is Grade.WARN
    assert "Too few for an interval: select has 2 and test has 7." in line.shown
    assert "8 prompts or more" in line.remedy
    enough = splits(("a",), many("b", 8), many("c", 8))
    assert splits_line(enough).grade is Grade.PASS
    judged = splits_line(enough, judged=4)
    assert judged.grade is Grade.WARN
    assert "Too few for an interval: select has 4." in judged.shown
    shared = splits_line(splits(("a",), ("a",), ("b",)))
    assert shared.grade is Grade.FAIL
    assert "Too few" in shared.shown


def test_an_id_in_two_splits_fails_though_its_texts_differ() -> None:
    given = Splits((Prompt("x", "a"),), (Prompt("x", "b"),), (Prompt("y", "c"),))
    line = splits_line(given)
    assert line.grade is Grade.FAIL
    assert line.numbers["num_same_id"] == 1


def test_a_prompt_of_all_three_splits_is_counted_for_each_pair() -> None:
    assert splits_line(splits(("a",), ("a",), ("a",))).numbers["num_same"] == 3


def test_prompts_that_encode_alike_are_the_same_whatever_their_words() -> None:
    given = splits(("a", "b"), many("c", 8), many("e", 8))
    every = replace(case.tokens(), same_ids=8, num_select=8)
    line = splits_line(given, every)
    assert (line.grade, line.numbers["num_same_tokens"]) == (Grade.FAIL, 8)
    assert "All 8 select prompts" in line.shown
    assert splits_line(given, replace(every, same_ids=1)).grade is Grade.WARN
    assert splits_line(given, replace(every, same_ids=0)).grade is Grade.PASS
