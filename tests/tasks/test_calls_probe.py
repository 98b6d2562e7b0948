from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import SpecError
from kltune.spec.task import TaskSpec
from kltune.tasks.calls_child import Origin
from kltune.tasks.calls_probe import probe_scorers
from kltune.tasks.registry import Task, load_task
from kltune.tasks.scorers import FunctionScorer


def load(folder: Path, body: str, **changes: Any) -> Task:
    gold = "def gold(completions, **_): return [0.0] * len(completions)\n"
    (folder / "r.py").write_text(
        f"import time\n{gold}def proxy(prompts, completions, **columns):\n    {body}\n",
        encoding="utf-8",
    )
    rows = "".join(json.dumps({"prompt": f"question {i}"}) + "\n" for i in range(12))
    (folder / "p.jsonl").write_text(rows, encoding="utf-8")
    fields = {"prompts": "p.jsonl", "proxy": "r.py:proxy", "gold": "r.py:gold", **changes}
    return load_task(TaskSpec.model_validate(fields), lambda name: folder / name)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return [1.0] * len(set(prompts))", r"returned 2 score\(s\) for 6 completion\(s\)"),
        ("return [str(len(c)) for c in completions]", "returned a str"),
        ("return [[1.0] for c in completions]", "returned a list"),
        ("return 1.0", r"returned 1\.0;"),
        ("time.sleep(60)", r"did not come back within 0\.1 s \(task\.timeout\) \(r\.py, line 4\)"),
    ],
)
def test_what_is_no_score_is_refused_before_a_model_is_there(
    tmp_path: Path, body: str, said: str
) -> None:
    with pytest.raises(SpecError, match=rf"^task\.proxy: scorer r\.py:proxy {said}"):
        probe_scorers(load(tmp_path, body, timeout=0.1))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "import os; os._exit(0)",
            r"would end the process: it calls os\._exit\(0\) \(r\.py, line 4\)",
        ),
        ("import posix; posix._exit(0)", r"would end the process: it calls os\._exit\(0\)"),
        ("import ctypes; ctypes.CDLL(None).exit(0)", r"ended its process \(exit code 0\)"),
        ("raise KeyboardInterrupt", "raised KeyboardInterrupt, though nobody pressed"),
    ],
)
@pytest.mark.parametrize("isolate", [False, True])
def test_a_function_that_ends_the_process_is_refused_and_ends_nothing(
    tmp_path: Path, body: str, said: str, isolate: bool
) -> None:
    with pytest.raises(
        SpecError, match=rf"^task\.proxy: scorer r\.py:proxy:? ?{said}|its process ended"
    ):
        probe_scorers(load(tmp_path, body, isolate=isolate))


def test_a_file_that_ends_the_process_while_it_loads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.py").write_text("from os import _exit\n_exit(0)\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"importing it failed .*line 2: .*os\._exit\(0\)"):
        load(tmp_path, "return [1.0 for _ in completions]", proxy="e.py:proxy")


def test_what_only_this_process_finds_is_tried_here(tmp_path: Path) -> None:
    task = load(tmp_path, "return 'no list'")
    assert isinstance(task.proxy, FunctionScorer)
    lost = replace(task.proxy, origin=Origin("gone.py:f", tmp_path / "gone.py", ()))
    with pytest.raises(SpecError, match="returned a str"):
        probe_scorers(replace(task, proxy=lost))


def test_a_part_of_a_sum_is_probed_too(tmp_path: Path) -> None:
    task = load(tmp_path, "return 1.0", proxy={"weighted": ["r.py:proxy"]})
    with pytest.raises(SpecError, match=r"returned 1\.0"):
        probe_scorers(task)


@pytest.mark.parametrize(
    "body", ["return [None for _ in completions]", "raise ValueError('another form of text')"]
)
def test_what_may_be_right_on_real_completions_passes(tmp_path: Path, body: str) -> None:
    probe_scorers(load(tmp_path, body))
