"""Taking a step apart changes no bit of it, and rows are named as the rollout numbers them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import tiny
import torch

from kltune.launch.threads import torch_threads
from kltune.trainer import train_step
from kltune.trainer.bank import Bank
from kltune.trainer.loss import LossTerms

SHAPES: list[dict[str, Any]] = [
    {},
    {"micro_batch": 4},
    {"micro_batch": 2},
    {"epochs": 2, "minibatches": 2},
    {"algorithm": "ppo", "epochs": 2, "minibatches": 2, "micro_batch": 2},
    {"reference": {"every": 1, "mixture": 0.5}},
]


@pytest.fixture(autouse=True)
def _one_thread() -> Generator[None]:
    with torch_threads(1):
        yield


def admitted(own_forward: bool = True, **trainer: Any) -> Bank:
    bank = tiny.bank(1, own_forward=own_forward, **trainer)
    bank.admit(0, 7, tiny.trial(penalty="exact-loss"), None)
    bank.train_step()
    return bank


def without_times(values: Any) -> dict[str, float]:
    return {name: value for name, value in values.items() if not name.startswith("time/")}


@pytest.mark.parametrize("trainer", SHAPES)
def test_a_traced_step_is_the_step_to_the_last_bit(trainer: dict[str, Any]) -> None:
    plain, traced = admitted(**trainer), admitted(**trainer)
    (one,) = plain.train_step()
    other, _ = traced.traced_step(0)
    assert without_times(one.values) == without_times(other.values)
    assert torch.equal(plain.parts.stack.flat_KP, traced.parts.stack.flat_KP)
    assert torch.equal(plain.parts.optimizer.exp_avg_KP, traced.parts.optimizer.exp_avg_KP)
    (one,), (other,) = plain.train_step(), traced.train_step()
    assert without_times(one.values) == without_times(other.values)


@pytest.mark.parametrize("trainer", SHAPES)
def test_an_update_has_the_log_probs_of_its_own_rows(trainer: dict[str, Any]) -> None:
    _, trace = admitted(**trainer).traced_step(0)
    passes = int(trainer.get("epochs", 1))
    rows = sorted(row.row for update in trace.updates for row in update.rows)
    assert rows == sorted(list(range(8)) * passes)
    for row in trace.updates[0].rows:  # nothing has moved before the first update
        policy = trace.completions[row.row].columns["policy"]
        assert row.columns["logprob"] == pytest.approx(policy, abs=1e-5)
        exact = trace.completions[row.row].columns["exact_kl"]
        assert row.columns["exact_kl"] == pytest.approx(exact, abs=1e-5)


def test_ids_mask_and_text_are_those_of_the_rollout() -> None:
    bank = admitted()
    drawn = tiny.next_rollout(bank)
    _, trace = bank.traced_step(0)
    for n, completion in enumerate(trace.completions):
        assert list(completion.completion_ids) == drawn.ids_KNT[0, n].tolist()
        assert list(completion.mask) == drawn.mask_KNT[0, n].int().tolist()
        prompt = drawn.prompts.ids[n][drawn.prompts.mask[n].bool()]
        assert list(completion.prompt_ids) == prompt.tolist()
        assert len(completion.token_texts) == len(completion.columns["policy"])
        assert completion.prompt.split() == [f"w{i - 2}" for i in completion.prompt_ids]
        assert completion.columns["sampler"] == pytest.approx(
            completion.columns["policy"], abs=1e-4
        )


def test_a_moving_reference_leaves_the_monitor_a_column_of_its_own() -> None:
    bank = admitted(reference={"every": 1, "mixture": 0.5})
    _, trace = bank.traced_step(0)
    columns = trace.completions[0].columns
    assert trace.rules["reference_moves"] is True
    assert columns["start_kl"] != columns["exact_kl"]


def test_an_ordinary_step_keeps_no_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[LossTerms] = []
    bank = admitted()
    before = train_step.learn

    def spying(*args: Any) -> Any:
        learned = before(*args)
        seen.extend(term for update in learned.updates[0].terms for term in update)
        return learned

    monkeypatch.setattr(train_step, "learn", spying)
    bank.train_step()
    assert [term.seen for term in seen] == [None]
    bank.traced_step(0)
    assert seen[-1].seen is not None
