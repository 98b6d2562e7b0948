"""How many rows are learned from at once, and that learning in groups changes nothing but memory."""

from __future__ import annotations

import pytest
import tiny
from oracle import push, recorded_bank, relative_error
from torch import Tensor, nn

from kltune.spec.penalty import Penalty
from kltune.spec.trainer import TrainerSpec
from kltune.trainer import measure, update
from kltune.trainer.activations import (
    LEAST_BYTES,
    activation_bytes_per_token,
    learns_by_groups,
    rows_at_once,
)
from kltune.trainer.bank import Bank


def spec(**fields: object) -> TrainerSpec:
    whole = {"steps": 1, "prompts": 8, "group_size": 8, "max_new_tokens": 32, **fields}
    return TrainerSpec.model_validate({"learning_rate": 1e-3, **whole})


def body(width: int, layers: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))


def test_a_token_keeps_the_inputs_and_outputs_of_every_linear_layer() -> None:
    assert activation_bytes_per_token(body(10, 3)) == 3 * 20 * 4


def test_a_small_model_learns_from_all_rows_at_once() -> None:
    assert rows_at_once(body(64, 4), spec(), prompt_width=10) == 64


def test_a_step_whose_activations_would_rule_the_memory_is_cut_into_whole_groups() -> None:
    model = body(256, 60)  # 120 kB a token, 16 MB of weights
    rows = rows_at_once(model, spec(), prompt_width=8)
    assert rows == 32
    assert rows * 40 * activation_bytes_per_token(model) <= LEAST_BYTES < 64 * 40 * 4 * 60 * 512


def test_never_less_than_a_group_and_always_a_divisor_of_the_rows() -> None:
    model = body(256, 60)
    assert rows_at_once(model, spec(max_new_tokens=4000), prompt_width=8) == 8
    assert rows_at_once(model, spec(prompts=6, max_new_tokens=40), prompt_width=8) in (
        8,
        16,
        24,
        48,
    )


def test_a_model_whose_weights_are_the_larger_part_is_not_cut() -> None:
    model = body(2000, 4)  # 64 MB of weights, 64 kB a token
    assert rows_at_once(model, spec(max_new_tokens=16), prompt_width=8) == 64


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, True),
        ({"algorithm": "rloo"}, True),
        ({"algorithm": "reinforce"}, False),  # its baseline is that of the whole batch
        ({"algorithm": "ppo"}, False),
        ({"epochs": 2}, False),
        ({"minibatches": 2}, False),
    ],
)
def test_only_what_needs_no_other_group_is_cut(fields: dict[str, object], may: bool) -> None:
    assert learns_by_groups(spec(**fields)) is may
    assert (rows_at_once(body(256, 60), spec(**fields), prompt_width=8) < 64) is may


def learned(penalty: Penalty, micro_batch: int | None, **trainer: object) -> tuple[Bank, Tensor, dict[str, float]]:  # fmt: skip
    bank, _, _ = recorded_bank(1, kl={"top_k": 5}, micro_batch=micro_batch, **trainer)
    bank.admit(0, 0, tiny.trial(beta=0.3, penalty=penalty, seed=3, learning_rate=3e-2), None)
    push(bank, 0)
    seen: list[Tensor] = []
    original = bank.parts.optimizer.step

    def spy(slot: int, weights_P: Tensor, gradient_P: Tensor, *rest: object) -> float:
        seen.append(gradient_P.clone())
        return original(slot, weights_P, gradient_P, *rest)  # pyright: ignore[reportArgumentType]

    bank.parts.optimizer.step = spy  # pyright: ignore[reportAttributeAccessIssue]
    (metrics,) = bank.train_step()
    (gradient_P,) = seen
    return bank, gradient_P, dict(metrics.values)


@pytest.mark.parametrize("algorithm", ["grpo", "dr-grpo", "rloo"])
@pytest.mark.parametrize(
    "penalty", [Penalty.K1_REWARD, Penalty.K3_LOSS, Penalty.EXACT_FULL, Penalty.TOPK_LOSS]
)
def test_groups_one_after_another_have_the_gradient_of_all_at_once(
    penalty: Penalty, algorithm: str
) -> None:
    _, whole_P, whole = learned(penalty, None, algorithm=algorithm)
    bank, cut_P, cut = learned(penalty, 4, algorithm=algorithm)
    assert bank.parts.micro_batch.size == 4 < bank.parts.settings.trainer.rows
    assert relative_error(cut_P, whole_P) < 1e-5
    for name, value in whole.items():
        if not name.startswith("time/") and name != "train/grad_kl_share":  # of one micro-batch
            assert cut[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_whole_groups_take_one_policy_pass_and_parts_of_groups_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes: list[int] = []

    def counting(*args: object) -> object:
        passes.append(1)
        return real(*args)  # pyright: ignore[reportArgumentType]

    real = update.hidden_states
    monkeypatch.setattr(update, "hidden_states", counting)
    monkeypatch.setattr(measure, "hidden_states", counting)
    learned(Penalty.K2_LOSS, 4)
    by_groups = len(passes)
    passes.clear()
    learned(Penalty.K2_LOSS, 2)
    assert by_groups == 2 * 2  # two groups: reference and policy
    assert len(passes) == 4 * 3  # four halves: reference and policy, then the policy with its graph
