from __future__ import annotations

from typing import Any

import pytest

from kltune.spec.prompts import PromptsSpec
from kltune.tasks.prompts_files import Table, numbered
from kltune.tasks.prompts_rows import Row, parse_table


def parse(rows: list[dict[str, Any]], **fields: object) -> tuple[list[Row], list[str]]:
    spec = PromptsSpec.model_validate({"path": "p.csv", **fields})
    return parse_table(Table("row", numbered(rows)), spec)


def test_columns_are_renamed_and_the_rest_keep_their_names_and_types() -> None:
    rows, problems = parse(
        [{"question": "q", "answer": [1, 2], "level": 3}],
        prompt="question",
        columns={"ground_truth": "answer"},
    )
    assert problems == []
    assert rows[0].prompt.text == "q"
    assert dict(rows[0].prompt.columns) == {"ground_truth": [1, 2], "level": 3}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "field 'prompt' is missing (fields here: question, answer): give {path:"),
        (
            {"prompt": "quesiton"},
            "prompt: there is no column 'quesiton' (columns: question, answer)",
        ),
        (
            {"prompt": "question", "columns": {"truth": "anwser"}},
            "columns.truth: there is no column 'anwser' (columns: question, answer)",
        ),
        ({"prompt": "question", "split": "part"}, "split: there is no column 'part'"),
        (
            {"prompt": "question", "split": {"train": "a", "select": "b", "test": "c"}},
            "split.column: there is no column 'split'",
        ),
    ],
)
def test_a_wrong_column_is_told_once_with_those_there_are(
    fields: dict[str, object], told: str
) -> None:
    rows, problems = parse([{"question": "q", "answer": "a"}] * 3, **fields)
    assert rows == []
    assert len(problems) == 1
    assert told in problems[0]


def test_a_new_name_that_another_column_has_is_refused() -> None:
    _, problems = parse([{"prompt": "q", "answer": 1, "truth": 2}], columns={"truth": "answer"})
    assert problems == [
        "row 1: columns.truth: the source has another column of that name; rename that too"
    ]


def test_a_list_of_messages_is_kept_as_turns_and_in_words() -> None:
    user = {"role": "user", "content": "hi"}
    system = {"role": "system", "content": "be brief"}
    rows, problems = parse([{"prompt": [user]}, {"prompt": [system, user]}])
    assert problems == []
    assert [row.prompt.text for row in rows] == ["hi", "system: be brief\nuser: hi"]
    assert rows[1].prompt.messages == (system, user)


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "is empty"),
        (["hi"], "a list of messages"),
        ([{"role": "user"}], "a list of messages"),
        ([{"role": "user", "content": [{"type": "image"}]}], "a list of messages"),
        ([{"role": "user", "content": "  "}], "is empty"),
        (
            [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            "leaves nothing to answer",
        ),
    ],
)
def test_messages_that_ask_nothing_are_refused(messages: list[Any], told: str) -> None:
    rows, problems = parse([{"prompt": messages}])
    assert rows == []
    assert problems[0].startswith("row 1: field 'prompt' ")
    assert told in problems[0]


def test_another_column_can_say_the_split() -> None:
    rows, problems = parse(
        [{"prompt": "a", "part": "train", "split": "kept"}, {"prompt": "b", "part": "dev"}],
        split="part",
    )
    assert [(row.split, dict(row.prompt.columns)) for row in rows] == [("train", {"split": "kept"})]
    assert problems == ["row 2: field 'part' must be one of train, select, test (got 'dev')"]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (1, "  This"),
        (3, "  This  film\nis"),
        (4, "  This  film\nis good."),
        (9, "  This  film\nis good."),
    ],
)
def test_only_the_first_words_are_kept_as_they_are_written(words: int, kept: str) -> None:
    rows, problems = parse([{"prompt": "  This  film\nis good."}], words=words)
    assert problems == []
    assert rows[0].prompt.text == kept


def test_messages_have_no_first_words() -> None:
    rows, problems = parse([{"prompt": [{"role": "user", "content": "a b c"}]}], words=2)
    assert rows == []
    assert problems == [
        "row 1: field 'prompt' is a list of messages, which task.prompts.words can't cut"
    ]
