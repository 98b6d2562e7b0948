"""What is timed, and how often."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kltune.launch import stopwatch
from kltune.launch.stopwatch import peak_gflops, process_bytes, step_seconds
from kltune.spec.trial import TrialSpec
from tests.fake_bank import FakeBank

SETTING = TrialSpec(beta=0.0, learning_rate=1e-3)


class Slow:
    """A clock that a step moves."""

    def __init__(self, *seconds: float) -> None:
        self.now = 0.0
        self.steps = 0
        self._seconds = seconds

    def __call__(self) -> float:
        return self.now

    def on_step(self, number: int, step: int) -> None:
        if number == 0:  # one round
            self.now += self._seconds[min(self.steps, len(self._seconds) - 1)]
            self.steps += 1


@pytest.mark.parametrize(
    ("slots", "seconds", "found", "steps"),
    [
        (1, (9.0, 0.2, 0.1, 0.3), 0.2, 4),  # the first one warms up; half a second is enough
        (1, (0.01,), 0.01, 1 + stopwatch.MOST_STEPS),
        (1, (7.0, 3.0), 3.0, 2),
        (1, (25.0,), 25.0, 1),  # so slow that warming up is nothing beside it
        (2, (9.0, 2.0), 1.0, 2),  # per trial
    ],
)
def test_a_step_is_timed_as_often_as_it_is_cheap(
    slots: int, seconds: Sequence[float], found: float, steps: int
) -> None:
    clock = Slow(*seconds)
    bank = FakeBank(slots, on_step=clock.on_step)
    assert step_seconds(bank, SETTING, clock) == pytest.approx(found)
    assert clock.steps == steps
    assert len(bank.free_slots()) == slots


def test_the_bank_is_emptied_where_a_step_fails() -> None:
    def on_step(number: int, step: int) -> None:
        raise RuntimeError("no room")

    bank = FakeBank(2, on_step=on_step)
    with pytest.raises(RuntimeError, match="no room"):
        step_seconds(bank, SETTING)
    assert bank.free_slots() == (0, 1)


def test_the_peak_is_that_of_a_matrix_product_and_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    assert 1 < peak_gflops("cpu") < 1e6
    assert torch.get_num_threads() == before


def test_a_process_is_no_smaller_than_what_it_holds_now() -> None:
    import psutil

    assert process_bytes() >= 0.9 * psutil.Process().memory_info().rss
