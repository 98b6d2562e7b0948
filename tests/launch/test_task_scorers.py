from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.launch.task_new import NewTask, run_task_new
from kltune.launch.task_scorers import drawn_answers, scorers_of
from kltune.spec.load import load_spec


def test_no_model_is_loaded_unless_completions_are_drawn(tmp_path: Path) -> None:
    run_task_new(NewTask(tmp_path / "mine", "verl"))
    ready = scorers_of(load_spec(tmp_path / "mine" / "spec.yaml"), draws=False)
    assert ready.ground is None
    assert list(ready.scorers) == ["task.proxy", "task.gold"]
    with pytest.raises(SpecError, match="not loaded"):
        drawn_answers(ready, 2)


def test_drawn_completions_are_the_models_answers_to_select(tmp_path: Path) -> None:
    run_task_new(NewTask(tmp_path / "mine", "model"))
    ready = scorers_of(load_spec(tmp_path / "mine" / "spec.yaml"), draws=True)
    drawn = drawn_answers(ready, 3)
    select = [prompt.id for prompt in ready.splits.select]
    assert [sample.prompt.id for sample in drawn] == select[:3]
    assert all(sample.token_ids for sample in drawn)
    assert list(ready.scorers) == ["task.gold"]
    assert "learned" in ready.notes[0]


def test_a_proxy_that_reads_tokens_is_tried_on_drawn_completions_only(tmp_path: Path) -> None:
    path = tmp_path / "kitchen.yaml"
    run_task_new(NewTask(tmp_path / "mine"))
    text = (tmp_path / "mine" / "spec.yaml").read_text(encoding="utf-8")
    start, end = text.index("task:\n"), text.index("model:\n")
    path.write_text(f"{text[:start]}task: kitchen\n{text[end:]}", encoding="utf-8")
    ready = scorers_of(load_spec(path), draws=False)
    assert list(ready.scorers) == ["task.gold"]
    assert "--draw" in ready.notes[0]
