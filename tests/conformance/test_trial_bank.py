"""The TrialBank contract: claims that every bank must meet, run on the fake one and on the real one.

Another bank joins by another entry in ``BANKS``: a function from the number of slots to a bank.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from kltune.spec.penalty import Penalty
from kltune.spec.trial import TrialSpec
from kltune.trainer.protocol import TrialBank
from tests.fake_bank import FakeBank

BANKS: dict[str, Callable[[int], TrialBank]] = {
    "fake": lambda slots: FakeBank(slots),
    "real": lambda slots: tiny.bank(slots),
}

ONE = TrialSpec(beta=0.01, penalty=Penalty.K2_LOSS, learning_rate=1e-3)
TWO = TrialSpec(beta=0.3, penalty=Penalty.K1_REWARD, learning_rate=1e-3)


@pytest.fixture(params=sorted(BANKS))
def make(request: pytest.FixtureRequest) -> Callable[[int], TrialBank]:
    return BANKS[request.param]


def test_slots_are_free_until_a_trial_enters_and_after_it_leaves(
    make: Callable[[int], TrialBank],
) -> None:
    bank = make(2)
    assert (bank.num_slots, bank.free_slots()) == (2, (0, 1))
    assert bank.admit(0, 7, ONE, None) == 0
    assert bank.free_slots() == (1,)
    bank.evict(0)
    assert bank.free_slots() == (0, 1)


def test_steps_are_counted_per_trial_from_1_and_carry_its_number(
    make: Callable[[int], TrialBank],
) -> None:
    bank = make(2)
    bank.admit(0, 7, ONE, None)
    bank.train_step()
    bank.admit(1, 8, TWO, None)
    measured = {m.slot: (m.trial_number, m.step) for m in bank.train_step()}
    assert measured == {0: (7, 2), 1: (8, 1)}


def test_at_step_0_the_policy_is_the_reference(make: Callable[[int], TrialBank]) -> None:
    bank = make(1)
    bank.admit(0, 7, ONE, None)
    (judged,) = bank.evaluate([0])
    assert (judged.step, judged.kl_token, judged.kl_seq) == (0, 0.0, 0.0)
    (first,) = bank.train_step()
    assert (first.kl_token, first.kl_seq) == (0.0, 0.0)


def test_an_evaluation_repeats_exactly_and_trains_nothing(
    make: Callable[[int], TrialBank],
) -> None:
    with_looks, without = make(1), make(1)
    for bank in (with_looks, without):
        bank.admit(0, 7, ONE, None)
        bank.train_step()
    one, two = with_looks.evaluate([0]), with_looks.evaluate([0])
    assert one[0].gold_by_prompt == two[0].gold_by_prompt
    assert with_looks.train_step()[0].kl_token == without.train_step()[0].kl_token


def test_only_the_slots_asked_for_are_evaluated(make: Callable[[int], TrialBank]) -> None:
    bank = make(2)
    bank.admit(0, 7, ONE, None)
    bank.admit(1, 8, TWO, None)
    assert [m.trial_number for m in bank.evaluate([1])] == [8]
    assert bank.evaluate([]) == ()


def test_a_checkpoint_continues_in_another_slot_of_another_bank(
    make: Callable[[int], TrialBank], tmp_path: Path
) -> None:
    bank = make(1)
    bank.admit(0, 7, ONE, None)
    for _ in range(2):
        bank.train_step()
    bank.save_checkpoint(0, tmp_path / "last")
    bank.save_checkpoint(0, tmp_path / "last")  # a second save replaces the first
    undisturbed = bank.train_step()[0]
    other = make(2)
    other.admit(0, 8, TWO, None)
    assert other.admit(1, 7, ONE, tmp_path / "last") == 2
    resumed = next(m for m in other.train_step() if m.slot == 1)
    # a neighbour changes the shapes, so float32 rounds elsewhere
    assert (resumed.step, resumed.kl_token) == (3, pytest.approx(undisturbed.kl_token, rel=1e-3))


def test_an_adapter_is_written_to_a_folder_of_its_own(
    make: Callable[[int], TrialBank], tmp_path: Path
) -> None:
    bank = make(1)
    bank.admit(0, 7, ONE, None)
    bank.train_step()
    bank.save_adapter(0, tmp_path / "checkpoints" / "best")
    assert list((tmp_path / "checkpoints" / "best").iterdir())


def test_an_empty_bank_measures_nothing(make: Callable[[int], TrialBank]) -> None:
    assert make(2).train_step() == ()
