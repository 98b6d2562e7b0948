from __future__ import annotations

import json
from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.launch.task_answers import answers_of_file, harmless_answers
from kltune.tasks.protocol import Prompt, Splits

SELECT = (Prompt("s1", "one?", {"answer": 1}), Prompt("s2", "two?", {"answer": 2}))
SPLITS = Splits((Prompt("t1", "train?"),), SELECT, (Prompt("x1", "test?"),))


def test_without_a_file_texts_that_say_nothing_and_the_right_answer_are_tried() -> None:
    found = harmless_answers(SPLITS, 4)
    assert [s.text for s in found] == ["Yes.", "I don't know.", "1", "Yes."]
    assert [s.prompt.id for s in found] == ["s1", "s1", "s1", "s2"]


def test_a_file_names_its_prompts_by_id_or_text_or_goes_through_select(tmp_path: Path) -> None:
    rows = [
        {"completion": "a"},
        {"completion": "b", "prompt": "train?"},
        {"completion": "c", "prompt_id": "x1"},
    ]
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = answers_of_file(path, SPLITS, None)
    assert [(s.prompt.id, s.text) for s in found] == [("s1", "a"), ("t1", "b"), ("x1", "c")]
    text = tmp_path / "c.txt"
    text.write_text("a\n\nb\nc\n", encoding="utf-8")
    found = answers_of_file(text, SPLITS, 2)
    assert [(s.prompt.id, s.text) for s in found] == [("s1", "a"), ("s2", "b")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no completions"),
        ("{", "line 1: not JSON"),
        ("[]", "line 1: must be an object"),
        ('{"text": "a"}', r"line 1: field 'completion' must be text \(fields here: text\)"),
        ('{"completion": "a", "prompt": "who?"}', "line 1: the task has no prompt 'who"),
    ],
)
def test_a_bad_file_is_told_by_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=said):
        answers_of_file(path, SPLITS, None)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"--completions: .* can't be read"):
        answers_of_file(tmp_path / "none.jsonl", SPLITS, None)
