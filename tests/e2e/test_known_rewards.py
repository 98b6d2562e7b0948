"""Rewards written for TRL and verl, as their own documentation writes them, run unchanged: tried alone, then in a sweep."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from e2e.cli import kltune, strict

from kltune.trial.record import read_trials

pytestmark = pytest.mark.slow

TRL = """
import asyncio
import re


def reward_len(completions, **kwargs):
    return [-abs(20 - len(completion)) for completion in completions]


def accuracy_reward(completions, solution, **kwargs):
    contents = [completion[0]["content"] for completion in completions]
    rewards = []
    for content, sol in zip(contents, solution):
        found = re.findall(r"\\d+|two|ten", content)
        rewards.append(1.0 if found and found[-1] == sol else None if not content.strip() else 0.0)
    return rewards


def format_reward_func(completions, **kwargs):
    completion_contents = [completion[0]["content"] for completion in completions]
    matches = [re.match(r"^[a-z .]+$", content) for content in completion_contents]
    return [1.0 if match else 0.0 for match in matches]


def think_short_reward(completions, **kwargs):
    return [-float(len(completion[0]["content"])) for completion in completions]


async def async_reward_func(prompts, completions, **kwargs):
    async def score(prompt, completion):
        await asyncio.sleep(0)
        return float(len(set(completion.split())))

    return await asyncio.gather(*[score(p, c) for p, c in zip(prompts, completions)])


def math_reward_func(prompts, completions, completion_ids, task=None, log_metric=None, trainer_state=None, **kwargs):
    assert all(isinstance(ids, list) for ids in completion_ids)
    return [float(len(ids)) for ids in completion_ids]
"""
VERL = """
def extract_solution(solution_str, method="strict"):
    words = solution_str.split()
    return words[-1] if words else None


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "own/rice"
    answer = extract_solution(solution_str=solution_str)
    if answer is None:
        return 0
    return {"score": 1.0 if answer == ground_truth else 0.1 * len(solution_str), "acc": answer == ground_truth}
"""
GOLD = "def gold(completions, **columns):\n    return [float(len(str(c))) for c in completions]\n"


BASE = Path(__file__).parents[2] / "kltune" / "tasks" / "kitchen" / "weights" / "base"


def with_template(folder: Path) -> str:
    """The kitchen model with a chat template, which conversations need."""
    shutil.copytree(BASE, folder / "chatty")
    path = folder / "chatty" / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["chat_template"] = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    path.write_text(json.dumps(config), encoding="utf-8")
    return "chatty"


def own(folder: Path, proxy: Any, *, is_chat: bool = False, **trainer: Any) -> Path:
    for name, text in (("trl_rewards.py", TRL), ("verl_rewards.py", VERL), ("gold.py", GOLD)):
        (folder / name).write_text(text, encoding="utf-8")
    rows: list[dict[str, Any]] = []
    for i in range(24):
        text = f"how long does rice take , version {i} ?"
        prompt = [{"role": "user", "content": text}] if is_chat else text
        truth = {"ground_truth": "minutes", "style": "rule"}
        extra = {"index": i, "split": "train"}
        rows.append(
            {"prompt": prompt, "solution": "ten", "data_source": "own/rice", "reward_model": truth}
            | {"extra_info": extra}
        )
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "name": "own",
        "task": {"prompts": "prompts.jsonl", "proxy": proxy, "gold": "gold.py:gold"},
        "model": {"base": with_template(folder) if is_chat else "builtin:kitchen"},
        "trainer": {"steps": 2, "prompts": 2, "group_size": 4, "max_new_tokens": 12, **trainer},
        "search": {"beta": {"log": [0.01, 1]}},
        "evaluate": {"every": 1, "prompts": 4, "samples": 1},
        "budget": {"trials": 1},
        "tracking": {"enabled": False},
    }
    path = folder / "own.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


CASES = [
    ("trl_rewards.py:reward_len", False),
    ("trl_rewards.py:async_reward_func", False),
    ("trl_rewards.py:math_reward_func", False),
    ("trl_rewards.py:accuracy_reward", True),
    ({"weighted": ["trl_rewards.py:accuracy_reward", "trl_rewards.py:format_reward_func"]}, True),
    ("verl_rewards.py:compute_score", False),
]


@pytest.mark.parametrize(("proxy", "is_chat"), CASES)
def test_it_is_tried_unchanged(tmp_path: Path, proxy: Any, is_chat: bool) -> None:
    done = kltune("task", "test", own(tmp_path, proxy, is_chat=is_chat), "--json")
    assert done.returncode == 0, done.stderr
    found = strict(done.stdout)["scorers"]
    assert [one["field"] for one in found] == ["task.proxy", "task.gold"]
    assert found[0]["problems"] == []
    assert any(score is not None for score in found[0]["scores"])


@pytest.mark.parametrize(
    "proxy",
    [
        "trl_rewards.py:reward_len",
        "trl_rewards.py:async_reward_func",
        "verl_rewards.py:compute_score",
    ],
)
def test_it_trains_unchanged(tmp_path: Path, proxy: str) -> None:
    done = kltune("sweep", own(tmp_path, proxy), "--study", tmp_path / "S")
    assert done.returncode == 0, done.stderr
    (record,) = read_trials(tmp_path / "S")
    assert [row["step"] for row in record.steps] == [1, 2]
    assert record.outcome is not None
    assert record.score_errors is None


def test_a_conversation_is_scored_as_one_in_training(tmp_path: Path) -> None:
    parts = ["trl_rewards.py:format_reward_func", "trl_rewards.py:think_short_reward"]
    spec = own(tmp_path, {"weighted": parts}, is_chat=True)
    done = kltune("sweep", spec, "--study", tmp_path / "S")
    assert done.returncode == 0, done.stderr
    (record,) = read_trials(tmp_path / "S")
    assert "train/part_format_reward_func" in record.steps[0]
    assert "What the parts of the proxy did" in (tmp_path / "S" / "report.html").read_text()
