"""Steps that are taken ahead of the calls: handed out in order, broken off in time, never lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kltune.errors import TrialFault
from kltune.guard.judge import StepWatch
from kltune.launch.worker_process import Skipped
from kltune.spec.guards import KLGuardSpec
from kltune.spec.trial import KLUnit, TrialSpec
from kltune.trainer.protocol import Ahead
from tests.inline_workers import Trio, never, steps_of


def test_steps_that_are_foreseen_are_sent_ahead_and_handed_out_one_by_one(
    trio: Callable[..., Trio],
) -> None:
    three, undisturbed = trio(slots=3), trio(slots=3)
    for each in (three, undisturbed):
        each.fill()
        each.bank.evaluate([0, 1, 2])  # how long it takes is not known before
    expected = [undisturbed.bank.train_step() for _ in range(5)]
    judged = undisturbed.bank.evaluate([0, 2])
    seen = [three.bank.train_step()]  # how long a step takes is not known before
    for left in (4, 3, 2, 1):
        three.bank.foresee({0: Ahead(left, never), 2: Ahead(left, never)})
        seen.append(three.bank.train_step())
        if left == 4:
            assert [b.steps_done[10 + n] for n, b in enumerate(three.banks)] == [5, 2, 5]
    assert seen == expected
    assert three.bank.evaluate([0, 2]) == judged
    names = [name for name, _ in three.workers[0].commands]
    assert names.count("evaluate") == 2  # the first, and the one that was sent ahead


def test_a_worker_waits_after_a_step_that_may_end_a_trial(trio: Callable[..., Trio]) -> None:
    three = trio(slots=3)
    three.fill(TrialSpec(beta=0.0, learning_rate=1e-3))
    three.bank.train_step()
    watch = StepWatch(KLGuardSpec(limit=0.2), KLUnit.TOKEN)
    three.bank.foresee({slot: Ahead(15, watch) for slot in range(3)})
    seen = [three.bank.train_step()]
    ahead = three.banks[0].steps_done[10]
    assert 3 < ahead < 16  # it stopped where the KL passed the limit
    while seen[-1][0].step < ahead:
        assert seen[-1][0].kl_token <= 0.2
        seen.append(three.bank.train_step())
    assert seen[-1][0].kl_token > 0.2
    assert three.bank.evaluate([0])[0].step == ahead  # judged at the weights of that step
    assert three.bank.train_step()[0].step == ahead + 1


def test_what_was_done_ahead_is_not_lost_when_a_search_is_interrupted(
    trio: Callable[..., Trio], tmp_path: Path
) -> None:
    three = trio(slots=3)
    three.fill()
    three.bank.evaluate([0, 1, 2])
    three.bank.train_step()
    three.bank.foresee({0: Ahead(3, never), 1: Ahead(5, never), 2: Ahead(1, never)})
    three.bank.train_step()
    caught_up: list[dict[int, tuple[int, int]]] = []
    while measured := three.bank.catch_up():
        caught_up.append(steps_of(measured))
    assert caught_up == [
        {0: (10, 3), 1: (11, 3)},
        {0: (10, 4), 1: (11, 4)},
        *({1: (11, step)} for step in (5, 6)),
    ]
    three.bank.save_checkpoint(
        1, tmp_path / "last"
    )  # an evaluation that nobody asked for is in the way
    assert three.bank.evaluate([1])[0].step == 6


def test_a_fault_breaks_what_was_sent_ahead(trio: Callable[..., Trio]) -> None:
    def on_step(number: int, step: int) -> None:
        if (number, step) == (11, 3):
            raise TrialFault((three.local_of(number),), "proxy raised")

    three = trio(slots=3, on_step=on_step)
    three.fill()
    three.bank.evaluate([0, 1, 2])
    three.bank.train_step()
    three.bank.foresee({slot: Ahead(5, never) for slot in range(3)})
    assert sorted(steps_of(three.bank.train_step())) == [0, 1, 2]
    assert sorted(steps_of(three.bank.train_step())) == [0, 2]
    with pytest.raises(TrialFault, match="proxy raised"):
        three.bank.train_step()
    three.bank.evict(1)
    assert {m.step for m in three.bank.train_step()} == {4}
    assert [name for name, _ in three.workers[1].commands].count("evaluate") == 2
    assert isinstance(three.workers[1].replies[len(three.workers[1].commands) - 1][0], Skipped)


def test_a_worker_that_went_on_although_something_was_to_be_decided_is_noticed(
    trio: Callable[..., Trio],
) -> None:
    three = trio(slots=3)
    three.fill()
    three.bank.train_step()
    three.bank.foresee({slot: Ahead(5, never) for slot in range(3)})
    three.bank.train_step()
    with pytest.raises(AssertionError, match="went on"):
        three.bank.evaluate([0])
