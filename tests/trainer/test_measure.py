"""What a rollout's own weights say about it; and a reference that follows the policy."""

from __future__ import annotations

import pytest
import tiny
import torch
from oracle import push, recorded_bank

from kltune.trainer.bank import Bank


def running(micro_batch: int | None = None, mixture: float = 1.0, every: int = 2) -> Bank:
    reference = {"every": every, "mixture": mixture}
    bank, _, _ = recorded_bank(1, reference=reference, micro_batch=micro_batch)
    bank.admit(0, 0, tiny.trial(seed=3, beta=0.3, learning_rate=3e-3), None)
    return bank


def test_a_moving_reference_starts_as_the_policy_and_follows_it_every_n_steps() -> None:
    bank = running()
    (row,) = bank.parts.rows.references((0,))
    flat_KP = bank.parts.stack.flat_KP
    assert torch.equal(flat_KP[row], flat_KP[0])
    first = flat_KP[0].clone()
    bank.train_step()
    assert torch.equal(flat_KP[row], first)
    bank.train_step()
    assert torch.equal(flat_KP[row], flat_KP[0])
    second = flat_KP[0].clone()
    bank.train_step()
    assert torch.equal(flat_KP[row], second)
    assert not torch.equal(flat_KP[0], second)


def test_a_mixture_moves_the_reference_part_of_the_way() -> None:
    bank = running(mixture=0.25, every=1)
    (row,) = bank.parts.rows.references((0,))
    start = bank.parts.stack.flat_KP[row].clone()
    bank.train_step()
    wanted = start + 0.25 * (bank.parts.stack.flat_KP[0] - start)
    torch.testing.assert_close(bank.parts.stack.flat_KP[row], wanted, rtol=1e-6, atol=1e-7)


def test_after_a_refresh_kl_to_it_is_zero_while_the_drift_from_the_start_goes_on() -> None:
    bank = running()
    found = [bank.train_step()[0] for _ in range(6)]
    anchors = [m.values["kl/anchor_token"] for m in found]
    drifts = [m.kl_token for m in found]
    assert anchors[0] == anchors[2] == anchors[4] == 0.0, "the step after a refresh"
    assert all(anchors[i] > 0 for i in (1, 3, 5))
    assert drifts[0] == 0.0
    assert all(drift > 0 for drift in drifts[1:])
    assert all(m.values["kl/exact_token"] == m.kl_token for m in found)
    # the penalty holds to the moving reference
    assert found[2].values["train/loss_kl"] == 0.0
    assert found[3].values["train/loss_kl"] > 0.0


def test_a_fixed_reference_has_no_anchor_of_its_own() -> None:
    bank = tiny.bank(1)
    bank.admit(0, 0, tiny.trial(), None)
    assert not any(name.startswith("kl/anchor") for name in bank.train_step()[0].values)


def test_the_controller_answers_the_kl_to_the_reference_in_force() -> None:
    bank, _, _ = recorded_bank(1, reference={"every": 1})
    spec = tiny.trial(seed=3, controller="proportional", target_kl=0.1, horizon=40)
    bank.admit(0, 0, spec, None)
    betas = [bank.train_step()[0].beta for _ in range(4)]
    # always 0 nats from where it is held to: beta falls at the clip, whatever the drift
    assert betas == pytest.approx([0.1 * (1 - 0.2 * 8 / 40) ** i for i in range(4)])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_rows_measured_in_pieces_are_the_rows_measured_at_once(size: int) -> None:
    banks = [running(), running(micro_batch=size)]
    for bank in banks:
        push(bank, bank.parts.rows.references((0,))[0], seed=4)
        push(bank, 0)
    one, other = (bank.train_step()[0] for bank in banks)
    for name, value in one.values.items():
        # grad_kl_share is that of one micro-batch
        if not name.startswith("time/") and name != "train/grad_kl_share":
            assert other.values[name] == pytest.approx(value, rel=1e-4, abs=2e-6), name
    assert one.values["kl/anchor_token"] != pytest.approx(one.kl_token, rel=1e-2)
