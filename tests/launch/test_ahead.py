"""What is sent ahead to a worker, and what comes of replies that nobody wants any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kltune.launch.ahead import MOST_S, Burst, Command, Queue, burst
from kltune.launch.worker_process import Halts, Skipped
from kltune.metrics.record import StepMetrics
from kltune.trainer.protocol import Ahead


def never(metrics: StepMetrics) -> bool:
    return False


class Scripted:
    """A worker that gives the replies it was told to, in order."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.sent: list[Command] = []

    def send(self, name: str, *arguments: object) -> int:
        self.sent.append((name, arguments))
        return len(self.sent)

    def send_chain(
        self, commands: Sequence[Command], halts: Halts | None, most_s: float
    ) -> list[int]:
        assert most_s == MOST_S
        return [self.send(name, *arguments) for name, arguments in commands]

    def ask(self, name: str, *arguments: object) -> Any:
        return self.receive(self.send(name, *arguments))

    def receive(self, number: int) -> Any:
        return self.replies[number - 1]


def step(number: int, seconds: float) -> tuple[StepMetrics, ...]:
    values = {"time/step_s": seconds}
    return (StepMetrics(0, 7, number, 0.0, 0.0, 0.0, 0.0, 10, True, values),)


def test_slots_of_one_worker_go_as_far_as_the_first_that_is_judged() -> None:
    assert burst({0: Ahead(7, never), 1: Ahead(3, never)}) == Burst(3, [1], never)
    assert burst({0: Ahead(3, never), 1: Ahead(3, never)}) == Burst(3, [0, 1], never)


def test_where_a_checkpoint_follows_nothing_is_judged() -> None:
    assert burst({0: Ahead(3, never, is_judged=False), 1: Ahead(3, never)}).judged == [1]


@pytest.mark.parametrize("plan", [{}, {0: None}, {0: Ahead(7, never), 1: None}])
def test_nothing_is_sent_ahead_of_what_is_not_foreseen(plan: dict[int, Ahead | None]) -> None:
    assert burst(plan).commands(100) == [("train_step", ())]


def test_the_evaluation_belongs_to_the_last_step() -> None:
    chain = Burst(3, [1], never)
    assert chain.commands(3) == [*[("train_step", ())] * 3, ("evaluate", ([1],))]
    assert chain.commands(2) == [("train_step", ())] * 2
    assert chain.commands(3, is_judged=False) == [("train_step", ())] * 3


@pytest.mark.parametrize(("seconds", "steps"), [(MOST_S / 3, 3), (10 * MOST_S, 1), (0.0, 9)])
def test_no_more_is_sent_ahead_than_is_done_within_seconds(seconds: float, steps: int) -> None:
    worker = Scripted(step(1, seconds))
    queue = Queue(worker)  # pyright: ignore[reportArgumentType]
    queue.send_burst(Burst(10, [0], never))
    assert len(worker.sent) == 1  # how long a step takes is not known yet
    queue.receive()
    queue.send_burst(Burst(9, [], never))
    assert len(worker.sent) == 1 + steps


@pytest.mark.parametrize(
    ("asked_s", "waited_s", "is_ahead"),
    [
        (None, 0.0, False),
        (MOST_S, 0.0, True),
        (MOST_S + 1, 0.0, False),
        (1.0, MOST_S + 1, False),
    ],
    ids=["never seen", "quick", "long", "long when it was sent ahead"],
)
def test_an_evaluation_is_sent_ahead_only_where_the_last_one_was_quick(
    asked_s: float | None, waited_s: float, is_ahead: bool
) -> None:
    now = [0.0]

    class Slow(Scripted):
        def receive(self, number: int) -> Any:
            if self.sent[number - 1][0] == "evaluate":
                now[0] += takes.pop(0)
            return super().receive(number)

    takes = [seconds for seconds in (asked_s, waited_s) if seconds is not None]
    worker = Slow(*[step(1, 0.1)] * 9)
    queue = Queue(worker, lambda: now[0])  # pyright: ignore[reportArgumentType]
    if asked_s is not None:
        queue.send_one("evaluate", ([0],))
        queue.receive()
    if waited_s:
        queue.send_burst(Burst(1, [0], never))
        assert [name for name, _ in worker.sent[1:]] == ["train_step", "evaluate"]
        queue.receive()
        now[0] += 100.0  # what we did meanwhile is none of its time
        queue.receive()
    before = len(worker.sent)
    queue.send_burst(Burst(1, [0], never))
    assert len(worker.sent) - before == 1 + is_ahead


def test_skipped_commands_and_unwanted_evaluations_are_passed_over() -> None:
    worker = Scripted((), step(1, 0.1), step(2, 0.1), Skipped(), Skipped(), "saved")
    queue = Queue(worker)  # pyright: ignore[reportArgumentType]
    queue.send_one("evaluate", ([0],))
    queue.receive()
    queue.send_burst(Burst(1, [], never))
    queue.receive()
    queue.send_burst(Burst(2, [0], never))
    assert queue.holds_steps()
    queue.receive()
    assert queue.receive() is None
    assert not queue.holds_steps()
    assert queue.ask("save_checkpoint", 0) == "saved"
