from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import adaptive, minimal, own_task, write

from kltune.spec.doubts import find_doubts
from kltune.spec.load import load_spec


def doubts(folder: Path, spec: dict[str, Any]) -> list[str]:
    """Those about guards, which see little in so few steps, are left out: tests/spec/test_guard_doubts.py."""
    told = find_doubts(load_spec(write(folder, spec)).spec)
    return [line for line in told if not line.startswith("guards: ")]


def test_limits_that_contradict_each_other_are_doubted(tmp_path: Path) -> None:
    spec = adaptive()
    spec["objective"] = {"kl_limit": 0.5}
    spec["guards"] = {"kl": {"limit": 0.1, "patience": 20}}
    fields = [told.split(":")[0] for told in doubts(tmp_path, spec)]
    assert fields == ["guards.kl.limit", "guards.kl.patience", "search.target_kl"]
    spec["guards"]["kl"]["action"] = "warn"  # it stops nothing, so it contradicts no limit
    fields = [told.split(":")[0] for told in doubts(tmp_path, spec)]
    assert fields == ["guards.kl.patience"]


def test_a_limit_in_the_wrong_unit_is_doubted(tmp_path: Path) -> None:
    spec = {**minimal(), "objective": {"kl_limit": 6}}
    (told,) = doubts(tmp_path, spec)
    assert told == (
        "objective.kl_limit: 6 nats per token is 192 nats over 32 tokens; "
        "if nats per sequence are meant, set kl_unit: sequence"
    )
    assert doubts(tmp_path, {**spec, "kl_unit": "sequence"}) == []


def test_a_trial_that_is_judged_only_at_its_ends_is_doubted(tmp_path: Path) -> None:
    (told,) = doubts(tmp_path, {**minimal(), "evaluate": {"every": 20}})
    assert told.startswith("evaluate.every: 20 of 20 steps")


def test_a_stage_that_lifts_the_target_over_the_guard_is_doubted(tmp_path: Path) -> None:
    spec = {**adaptive(), "guards": {"kl": {"limit": 0.3}}}
    assert doubts(tmp_path, spec) == []
    spec["control"] = {"targets": [[0, 3], [0.5, 1]]}
    (told,) = doubts(tmp_path, spec)
    assert told.startswith("search.target_kl: up to 0.3 nats per token, while guards.kl.limit")


def test_doubts_about_controllers_come_with_the_others(tmp_path: Path) -> None:
    spec = {**adaptive(), "evaluate": {"every": 20}}
    spec["search"]["horizon"] = 10_000
    fields = [told.split(":")[0] for told in doubts(tmp_path, spec)]
    assert fields == ["search.horizon", "evaluate.every"]


@pytest.mark.parametrize(
    ("trainer", "penalty", "told"),
    [
        (
            {"kl": {"credit": "length-mean"}},
            "k1-reward",
            "trainer.kl.credit: length-mean: beta is the price of the mean KL per token",
        ),
        (
            {"algorithm": "ppo", "critic": {"gamma": 0.99}},
            "k1-reward",
            "trainer.critic.gamma: 0.99 discounts the KL of later tokens too",
        ),
        (
            {"epochs": 2, "minibatches": 2},
            "k3-loss",
            "search.penalty: k3-loss carries no importance ratio (as in classic GRPO), and 2 x 2",
        ),
    ],
)
def test_what_changes_the_meaning_of_beta_is_doubted(
    tmp_path: Path, trainer: dict[str, Any], penalty: str, told: str
) -> None:
    spec = minimal()
    spec["trainer"] |= trainer
    spec["search"]["penalty"] = penalty
    (line,) = doubts(tmp_path, spec)
    assert line.startswith(told)


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ({"every": 20}, "20 steps don't pass within a trial of 20: the reference never moves"),
        ({"every": 1}, "with one update per step the policy is at its reference whenever it"),
    ],
)
def test_a_reference_that_never_moves_or_never_lags_is_doubted(
    tmp_path: Path, reference: dict[str, Any], told: str
) -> None:
    spec = minimal()
    spec["trainer"]["reference"] = reference
    (line,) = doubts(tmp_path, spec)
    assert line.startswith(f"trainer.reference.every: {told}")
    spec["trainer"]["reference"] = {"every": 5}
    assert doubts(tmp_path, spec) == []


def test_a_ratio_that_is_there_or_not_needed_is_not_doubted(tmp_path: Path) -> None:
    spec = minimal()
    spec["search"]["penalty"] = "k3-loss"
    assert doubts(tmp_path, spec) == []
    spec["trainer"] |= {"epochs": 4}
    spec["search"]["penalty"] = "wk3-loss"
    assert doubts(tmp_path, spec) == []


@pytest.mark.parametrize("spelled", ["rewards.py:gold", "./rewards.py:gold"])
def test_a_second_gold_that_is_the_objectives_function_again_is_doubted(
    tmp_path: Path, spelled: str
) -> None:
    spec = own_task(tmp_path)
    spec["task"]["golds"] = {"same": spelled, "other": "rewards.py:tone"}
    assert doubts(tmp_path, spec) == [
        f"task.golds.same: {spelled} is the function of task.gold again, so it adds no other judgement"
    ]
    spec["task"]["golds"] = {"other": "rewards.py:tone", "third": "rewards.py:tone"}
    (told,) = doubts(tmp_path, spec)
    assert told.startswith("task.golds.third: rewards.py:tone is the function of task.golds.other")


@pytest.mark.parametrize(
    ("proxy", "gold", "words"),
    [
        ({"judge": "m"}, {"judge": "m", "ask": "Is {completion} kind?"}, "the same model, asked"),
        ({"verifier": "math"}, {"verifier": "math"}, "the same check"),
    ],
)
def test_a_proxy_that_is_near_the_gold_is_doubted(
    tmp_path: Path, proxy: dict[str, Any], gold: dict[str, Any], words: str
) -> None:
    url = {"url": "http://h/v1"} if "judge" in proxy else {}
    task = {"prompts": "p.jsonl", "proxy": {**proxy, **url}, "gold": {**gold, **url}}
    (told,) = doubts(tmp_path, {**minimal(), "task": task})
    assert told.startswith(f"task.proxy: task.gold is {words}")
