from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.launch.init_questions import (
    QUESTIONS,
    ask_all,
    ask_terminal,
    minutes_of,
    on_terminal,
    task_of,
)
from kltune.scaffold.start import Answers


def test_every_question_that_has_a_flag_says_what_it_means_and_most_have_a_default() -> None:
    assert list(QUESTIONS) == [
        "task", "model", "prompts", "gold", "proxy", "algorithm", "minutes",
    ]  # fmt: skip
    own = Answers("a", task=None)
    without = [name for name, question in QUESTIONS.items() if not question.default(own)]
    assert without == ["model"]
    assert all(question.meaning.strip() for question in QUESTIONS.values())


def test_a_built_in_task_is_not_asked_for_files(tmp_path: Path) -> None:
    asked: list[str] = []

    def enter(prompt: str) -> str:
        asked.append(prompt)
        return ""

    found = ask_all(Answers("a"), frozenset(), enter, tmp_path / "a.yaml")
    assert asked == ["task [kitchen]: ", "algorithm [grpo]: ", "minutes [15]: "]
    assert (found.task, found.minutes) == ("kitchen", 15)


def test_the_end_of_the_input_counts_as_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(" an answer \n"))
    assert ask_terminal("model: ") == "an answer"
    with pytest.raises(KeyboardInterrupt):
        ask_terminal("model: ")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "model: model: \n")  # stdout is left to the result
    assert not on_terminal()


def test_tasks_and_minutes_are_read_or_refused() -> None:
    assert (task_of("kitchen"), task_of("own")) == ("kitchen", None)
    with pytest.raises(SpecError, match="--task"):
        task_of("")
    assert minutes_of("2.5") == 2.5
    for text in ("0", "-1", "nan", "inf", "1e9", "soon", ""):
        with pytest.raises(SpecError, match="--minutes"):
            minutes_of(text)
