from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from chat_fake import chat_server

from kltune.errors import ExitCode
from kltune.launch.task_new import NewTask, run_task_new
from kltune.launch.task_try import TryRequest, judge, run_task_try
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import CallLimits, function_scorer

TWO = [Sample(Prompt("p", "q"), text, (1,), True) for text in ("one", "bad")]


@pytest.fixture
def spec_path(tmp_path: Path) -> Path:
    run_task_new(NewTask(tmp_path / "mine"))
    return tmp_path / "mine" / "spec.yaml"


def test_scores_of_every_scorer_are_shown_with_milliseconds(
    spec_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_task_try(TryRequest(spec_path, count=3)) is ExitCode.DONE
    shown = capsys.readouterr().out
    assert "The answer is 42." in shown
    assert "ms per completion" in shown
    assert "rewards.py:proxy" in shown


def test_a_sum_shows_its_parts_and_json_holds_everything(
    spec_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = "task.proxy={weighted: [{function: 'rewards.py:proxy', weight: 2}]}"
    capfd.readouterr()
    run_task_try(TryRequest(spec_path, count=2, overrides=(parts,), as_json=True))
    found = json.loads(capfd.readouterr().out)
    proxy = found["scorers"][0]
    assert proxy["field"] == "task.proxy"
    assert proxy["scores"] == [2 * value for value in proxy["parts"]["proxy"]]
    assert [row["completion"] for row in found["completions"]] == ["Yes.", "I don't know."]


def test_a_scorer_that_fails_is_said_with_the_completion_and_exit_code_4(
    spec_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewards = spec_path.with_name("rewards.py")
    rewards.write_text(
        "def gold(completions, **_): return [1.0] * len(completions)\n"
        "def proxy(completions, **_): return [1 / ('know' not in text) for text in completions]\n",
        encoding="utf-8",
    )
    assert run_task_try(TryRequest(spec_path)) is ExitCode.GATE_FAILED
    shown = " ".join(capsys.readouterr().out.split())
    assert "ZeroDivisionError" in shown
    assert 'completion "I don\'t know."' in shown


def test_completions_of_a_file_are_scored(
    spec_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.txt"
    path.write_text("Cook them for 8 minutes.\n", encoding="utf-8")
    run_task_try(TryRequest(spec_path, completions=path))
    assert "Cook them for 8 minutes." in capsys.readouterr().out


def test_gold_without_a_number_is_a_fault_and_of_the_proxy_is_none() -> None:
    def some(completions: list[str]) -> list[Any]:
        return [None if text == "bad" else 1.0 for text in completions]

    assert judge("task.gold", function_scorer("g", some), TWO).is_broken
    proxy = judge("task.proxy", function_scorer("p", some), TWO)
    assert not proxy.is_broken
    assert math.isnan(proxy.values[1])

    def picky(completions: list[str]) -> list[float]:
        if "bad" in completions:
            raise ValueError("no")
        return [1.0] * len(completions)

    scorer = function_scorer("p", picky, limits=CallLimits(5.0, 0.5))
    assert judge("task.proxy", scorer, TWO).is_broken


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("__import__('os')._exit(0)", "would end the process: it calls os._exit(0)"),
        ("__import__('ctypes').CDLL(None).exit(0)", "ended its process (exit code 0)"),
        ("raise KeyboardInterrupt", "raised KeyboardInterrupt, though nobody pressed Ctrl-C"),
        ("return [None] * len(completions)", "scored none of 8 completions"),
        ("return [10**399] * len(completions)", "an integer of about 400 digits"),
    ],
)
@pytest.mark.parametrize("field", ["proxy", "gold"])
def test_a_scorer_that_ends_the_process_or_says_nothing_is_told(
    spec_path: Path, capsys: pytest.CaptureFixture[str], body: str, said: str, field: str
) -> None:
    other = {"proxy": "gold", "gold": "proxy"}[field]
    spec_path.with_name("rewards.py").write_text(
        f"def {field}(completions, **_): {body}\n"
        f"def {other}(completions, **_): return [1.0] * len(completions)\n",
        encoding="utf-8",
    )
    assert run_task_try(TryRequest(spec_path)) is ExitCode.GATE_FAILED
    shown = " ".join(capsys.readouterr().out.split())
    assert f"task.{field}: " in shown
    assert said in shown
    assert shown.count(f"task.{field}: task.{field}") == 0


def test_a_judge_whose_replies_can_not_be_read_is_a_fault_and_said_once(
    spec_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with chat_server(lambda _: "I like it.") as chat:
        judged = f"task.gold={{judge: m, url: '{chat.url}'}}"
        assert run_task_try(TryRequest(spec_path, overrides=(judged,))) is ExitCode.GATE_FAILED
    shown = " ".join(capsys.readouterr().out.split())
    assert "judge m gave no answer that can be read to any question" in shown
    assert len([r for r in caplog.records if "can be read" in r.getMessage()]) == 1


def test_a_judge_out_of_reach_is_named_once(
    spec_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(lambda _: (401, "who?")) as chat:
        judged = f"task.gold={{judge: m, url: '{chat.url}'}}"
        assert run_task_try(TryRequest(spec_path, overrides=(judged,))) is ExitCode.GATE_FAILED
    shown = " ".join(capsys.readouterr().out.split())
    assert "task.gold: the judge at" in shown
    assert "task.gold: task.gold" not in shown
