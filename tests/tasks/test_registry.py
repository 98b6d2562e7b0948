from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import SpecError
from kltune.spec.task import BuiltinTask, LearnedProxySpec, ProxySpec, TaskSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.registry import ShippedProxy, Task, load_task

SCORERS = """
def gold(prompts, completions, topic): return [float(len(c)) for c in completions]
def proxy(prompts, completions, **_): return [float(c.count("!")) for c in completions]
def proxy_two(completions): return [1.0 + c.count("!") for c in completions]
def copy(prompts, completions, **_): return [float(c.count("!")) for c in completions]
def needy(completions, answer): return [0.0 for _ in completions]
"""


def load(folder: Path, **changes: Any) -> Task:
    (folder / "scorers.py").write_text(SCORERS, encoding="utf-8")
    rows = [{"prompt": f"question {i}", "topic": "t"} for i in range(12)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "mine.jsonl").write_text(text, encoding="utf-8")
    fields = {"prompts": "mine.jsonl", "proxy": "scorers.py:proxy", "gold": "scorers.py:gold"}
    return load_task(TaskSpec(**{**fields, **changes}), lambda name: folder / name)


def no_path(name: str) -> Path:
    raise AssertionError(f"a built-in task looks nothing up, asked for {name}")


def test_a_users_task_under_a_path_with_space_and_accent_scores_text(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "é"
    folder.mkdir(parents=True)
    task = load(folder)
    assert task.name == "mine"
    assert [len(task.splits.train), len(task.splits.select), len(task.splits.test)] == [6, 3, 3]
    samples = [Sample(Prompt("1", "q", {"topic": "t"}), "so!!", (1, 2), True)]
    assert task.gold(samples) == [4.0]
    assert callable(task.proxy)
    assert task.proxy(samples) == [2.0]
    assert [task.gold.name, task.proxy.name] == ["scorers.py:gold", "scorers.py:proxy"]


def test_digests_tell_the_splits_apart_and_stay(tmp_path: Path) -> None:
    task = load(tmp_path)
    assert sorted(task.digests) == ["select", "test", "train"]
    assert len(set(task.digests.values())) == 3
    assert load(tmp_path).digests == task.digests


def test_a_module_or_package_is_found_wherever_a_path_would_be(tmp_path: Path) -> None:
    here, spec_folder = tmp_path / "here", tmp_path / "spec"
    (spec_folder / "rates_zz").mkdir(parents=True)
    (spec_folder / "rate_zz.py").write_text(SCORERS, encoding="utf-8")
    (spec_folder / "rates_zz" / "one.py").write_text(SCORERS, encoding="utf-8")
    (spec_folder / "mine.txt").write_text("".join(f"q{i}\n" for i in range(12)), encoding="utf-8")

    def resolve(name: str) -> Path:
        return spec_folder / name if (spec_folder / name).exists() else here / name

    for gold in ("rate_zz:proxy", "rates_zz.one:proxy"):
        learned = ProxySpec(learned=LearnedProxySpec())
        task = load_task(TaskSpec(prompts="mine.txt", gold=gold, proxy=learned), resolve)
        assert task.gold.name == gold


def test_a_learned_proxy_is_passed_on_to_be_fitted(tmp_path: Path) -> None:
    learned = LearnedProxySpec(comparisons=7)
    assert load(tmp_path, proxy=ProxySpec(learned=learned)).proxy == learned
    kitchen = load_task(BuiltinTask(builtin="kitchen", proxy=ProxySpec(learned=learned)), no_path)
    assert kitchen.proxy == learned


def test_gold_and_proxy_the_same_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="same function"):
        load(tmp_path, proxy="scorers.py:gold")
    with pytest.raises(SpecError, match="same function"):
        load(tmp_path, proxy=f"{tmp_path / 'scorers.py'}:gold")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompts": "none.jsonl"}, "task.prompts: {folder}/none.jsonl"),
        ({"gold": "none.py:gold"}, "task.gold: none.py:gold: {folder}/none.py can't be read"),
        ({"gold": "scorers.py:gild"}, "task.gold: scorers.py:gild: there is no function 'gild'"),
        ({"proxy": "no_such_zz:f"}, "task.proxy: no_such_zz:f: there is no module 'no_such_zz'"),
        (
            {"gold": "scorers.py:needy"},
            "task.gold: scorer scorers.py:needy needs the column(s) answer",
        ),
    ],
)
def test_a_mistake_names_its_field(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, **changes)
    assert said.format(folder=tmp_path) in str(caught.value)


def test_an_unknown_task_lists_the_known_ones() -> None:
    with pytest.raises(SpecError, match="no built-in task 'kitchn'; known: kitchen, everyday"):
        load_task(BuiltinTask(builtin="kitchn"), no_path)


def test_kitchen_comes_with_its_reward_model() -> None:
    task = load_task(BuiltinTask(builtin="kitchen"), no_path)
    assert isinstance(task.proxy, ShippedProxy)
    assert task.proxy.folder.name == "reward"
    assert task.gold.name == "kitchen-gold"
    assert task.splits.train


def test_everyday_learns_its_proxy_from_few_comparisons() -> None:
    task = load_task(BuiltinTask(builtin="everyday"), no_path)
    assert isinstance(task.proxy, LearnedProxySpec)
    assert task.proxy.comparisons <= 64
    assert task.gold.name == "everyday-gold"


def test_loading_a_task_loads_no_torch() -> None:
    code = (
        "import sys; from kltune.spec.task import BuiltinTask; from kltune.tasks.registry import load_task; "
        "load_task(BuiltinTask(builtin='everyday'), None); "
        "print([m for m in ('torch', 'transformers', 'vaderSentiment') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_further_golds_come_by_name_and_in_order(tmp_path: Path) -> None:
    task = load(tmp_path, golds={"b": "scorers.py:proxy_two", "a": "scorers.py:gold"})
    assert list(task.golds) == ["b", "a"]
    samples = [Sample(Prompt("1", "q", {"topic": "t"}), "so!!", (1, 2), True)]
    assert [scorer(samples) for scorer in task.golds.values()] == [[3.0], [4.0]]
    assert load(tmp_path).golds == {}


def test_every_gold_is_held_against_the_proxy(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"task\.golds\.tone \(scorers\.py:copy\) are the same function"
    ):
        load(tmp_path, golds={"good": "scorers.py:gold", "tone": "scorers.py:copy"})


def test_what_is_wrong_with_a_further_gold_is_said_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"task\.golds\.tone: scorers\.py:gild: there is no function"
    ):
        load(tmp_path, golds={"tone": "scorers.py:gild"})
    with pytest.raises(SpecError, match=r"task\.golds\.tone: .*needs the column"):
        load(tmp_path, golds={"tone": "scorers.py:needy"})


def test_a_built_in_task_ships_golds_to_name() -> None:
    task = load_task(BuiltinTask(builtin="kitchen", golds=("retention",)), no_path)
    assert [scorer.name for scorer in task.golds.values()] == ["kitchen-retention"]
    with pytest.raises(SpecError, match="kitchen has no further gold 'tone'; it ships retention"):
        load_task(BuiltinTask(builtin="kitchen", golds=("tone",)), no_path)


@pytest.mark.parametrize(
    ("proxy", "named"),
    [
        ({"model": "rm"}, "task.proxy and task.gold"),
        ({"model": "./rm", "score": "probability"}, "task.proxy and task.gold"),
        (
            {"weighted": ["scorers.py:proxy", {"model": "rm"}]},
            "task.proxy.weighted.1 and task.gold",
        ),
    ],
)
def test_one_model_is_never_proxy_and_gold(tmp_path: Path, proxy: Any, named: str) -> None:
    (tmp_path / "rm").mkdir()
    with pytest.raises(SpecError, match=f"^{named} are the same judgement"):
        load(tmp_path, proxy=proxy, gold={"model": "rm"})
    assert load(tmp_path, proxy={"model": "rm", "label": 1}, gold={"model": "rm"}).name
