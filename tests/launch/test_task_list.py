from __future__ import annotations

import json

import pytest

from kltune.launch.task_list import builtin_tasks, run_task_list
from kltune.tasks.registry import BUILTIN_TASKS


def test_every_built_in_task_is_listed_with_its_sizes() -> None:
    listed = {task.name: task for task in builtin_tasks()}
    assert tuple(listed) == BUILTIN_TASKS
    assert listed["kitchen"].prompts == {"train": 240, "select": 78, "test": 78}
    assert listed["kitchen"].golds == ("retention",)


def test_the_list_is_the_result_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    run_task_list(as_json=False)
    assert "240 train, 78 select, 78 test" in capsys.readouterr().out
    run_task_list(as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [task["name"] for task in found["tasks"]] == list(BUILTIN_TASKS)
