"""Seconds by a clock that is set by hand."""

from __future__ import annotations

import pytest
import torch

from kltune.trainer.phases import Phases


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def test_seconds_of_each_phase_are_exclusive_and_shared_by_the_slots() -> None:
    clock = Clock()
    phases = Phases(torch.device("cpu"), clock)
    phases.restart()
    clock.now += 1  # belongs to no phase
    with phases.of("logprobs"):
        clock.now += 4
        with phases.of("reference"):
            clock.now += 2
        clock.now += 6
    with phases.of("update"):
        clock.now += 1
    with phases.of("logprobs"):
        clock.now += 10
    assert phases.metrics(2) == {
        "time/rollout_s": 0.0,
        "time/score_s": 0.0,
        "time/reference_s": 1.0,
        "time/logprobs_s": 10.0,
        "time/update_s": 0.5,
        "time/step_s": 12.0,
    }


def test_a_new_step_starts_from_zero_even_after_an_error_within_a_phase() -> None:
    clock = Clock()
    phases = Phases(torch.device("cpu"), clock)
    with pytest.raises(KeyError), phases.of("rollout"):
        _ = {}["nothing"]
    phases.restart()
    with phases.of("score"):
        clock.now += 1
    seconds = phases.metrics(1)
    assert (seconds["time/rollout_s"], seconds["time/score_s"]) == (0.0, 1.0)
