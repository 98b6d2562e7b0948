"""Every algorithm with every penalty: K trials packed against each alone, and a slot beside broken neighbours."""

from __future__ import annotations

import pytest
import tiny
import torch
from oracle import push, relative_error

from kltune.spec.penalty import Penalty
from kltune.spec.trial import TrialSpec
from kltune.trainer.bank import Bank

pytestmark = pytest.mark.parity

PENALTIES: list[Penalty | None] = [None, *Penalty]
ALGORITHMS = {
    "grpo": {},
    "dr-grpo": {"kl": {"credit": "reward-to-go"}},
    "rloo": {"importance": "sequence", "epochs": 2},
    "reinforce": {"entropy_bonus": 0.01, "reward": {"normalize": "running"}},
    "ppo": {"epochs": 2, "minibatches": 2, "reference": {"every": 1, "mixture": 0.5}},
}
"""With each, some of what else changes a step."""


def spec_of(penalty: Penalty | None, seed: int) -> TrialSpec:
    beta = 0.0 if penalty is None else 0.3
    # a small rate: after a large step every ratio of whole completions would be clipped
    return tiny.trial(beta=beta, penalty=penalty, seed=seed, learning_rate=1e-4)


def settings(algorithm: str) -> dict[str, object]:
    given = ALGORITHMS[algorithm]
    kl = {"top_k": 5, **given.get("kl", {})}
    return {"algorithm": algorithm, **given, "kl": kl}


def rows(bank: Bank, slot: int) -> list[torch.Tensor]:
    """Everything that a slot owns."""
    parts = bank.parts
    found = [parts.stack.flat_KP[row] for row in parts.rows.of(slot)]
    trained = [row for row in parts.rows.of(slot) if row < len(parts.optimizer.num_steps_K)]
    for moments in (parts.optimizer.exp_avg_KP, parts.optimizer.exp_avg_sq_KP):
        found += [moments[row] for row in trained]
    if parts.critic is not None:
        found.append(parts.critic.head_KH[slot])
        found += [parts.critic.optimizer.exp_avg_KP[slot]]
        found += [parts.critic.optimizer.exp_avg_sq_KP[slot]]
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_packed_and_alone_learn_the_same_from_the_same_state(algorithm: str) -> None:
    together = tiny.bank(len(PENALTIES), **settings(algorithm))
    for slot, penalty in enumerate(PENALTIES):
        together.admit(slot, slot, spec_of(penalty, slot), None)
        push(together, slot, seed=slot)
    got = together.train_step()
    for slot, penalty in enumerate(PENALTIES):
        alone = tiny.bank(1, **settings(algorithm))
        alone.admit(0, slot, spec_of(penalty, slot), None)
        push(alone, 0, seed=slot)
        before = alone.parts.stack.flat_KP[0].clone()
        (expected,) = alone.train_step()
        assert expected.values["train/grad_norm"] > 0, penalty
        assert got[slot].tokens == expected.tokens, penalty
        assert got[slot].kl_token == pytest.approx(expected.kl_token, rel=1e-5), penalty
        ours, theirs = together.parts.stack.grad_KP[slot], alone.parts.stack.grad_KP[0]
        # after the first update the weights differ by rounding: AdamW's first step is the sign of a gradient
        updates = expected.values["train/updates"]
        assert relative_error(ours, theirs) < (1e-5 if updates == 1 else 2e-2), penalty
        moved = alone.parts.stack.flat_KP[0] - before
        other = together.parts.stack.flat_KP[slot] - before
        assert float(moved.norm()) > 0, penalty
        assert relative_error(other, moved) < 2e-2, penalty


@pytest.mark.parametrize("first", range(0, len(PENALTIES), 2))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_broken_neighbour_changes_not_one_bit(algorithm: str, first: int) -> None:
    watched = PENALTIES[first : first + 2]
    quiet, loud = tiny.trial(seed=7), tiny.trial(seed=9, beta=2.0, penalty="k3-loss")
    banks: list[Bank] = []
    for neighbour, is_broken in ((quiet, False), (loud, True)):
        bank = tiny.bank(3, compact=False, **settings(algorithm))
        for slot, spec in (
            (0, spec_of(watched[0], 3)),
            (1, neighbour),
            (2, spec_of(watched[1], 4)),
        ):
            bank.admit(slot, slot, spec, None)
            push(bank, slot, seed=slot)
        if is_broken:
            bank.parts.stack.flat_KP[1] = torch.nan
        banks.append(bank)
    for _ in range(2):
        one, other = (bank.train_step() for bank in banks)
        assert not other[1].is_finite
        for slot in (0, 2):
            assert one[slot].is_finite
            same = [n for n in one[slot].values if not n.startswith("time/")]
            for name in same:
                a, b = float(one[slot].values[name]), float(other[slot].values[name])
                assert a.hex() == b.hex(), (algorithm, watched, name)
            for a, b in zip(rows(banks[0], slot), rows(banks[1], slot), strict=True):
                assert torch.equal(a, b)
