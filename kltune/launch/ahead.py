"""What a worker was sent and has not answered yet: commands in, replies in their order out.

A *burst* is a chain of steps, and the evaluation that follows them, that a worker carries out without
waiting to be asked again. A step after which something may be decided breaks the chain: what is left
of it is skipped, so the weights are still those of that step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kltune.launch.worker import Worker
from kltune.launch.worker_process import Halts, Skipped
from kltune.trainer.protocol import Ahead

MOST_S = 3.0
"""Seconds of steps that are sent ahead at most: an interruption has to wait for them."""

Command = tuple[str, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Burst:
    """Steps, and the evaluation after them, of all slots of one worker."""

    steps: int
    judged: list[int]
    """Slots of the worker that are evaluated after the last step; may be none."""
    halts: Halts | None

    def commands(self, most_steps: int) -> list[Command]:
        """Its commands, cut to ``most_steps``; the evaluation belongs to the last one."""
        steps: list[Command] = [("train_step", ())] * min(self.steps, most_steps)
        if self.steps <= most_steps and self.judged:
            return [*steps, ("evaluate", (self.judged,))]
        return steps


def burst(plan: Mapping[int, Ahead | None]) -> Burst:
    """What can be sent ahead to a worker, from what is foreseen for each of its slots; one step where something isn't."""
    known = [ahead for ahead in plan.values() if ahead is not None]
    if len(known) < len(plan) or not known:
        return Burst(1, [], None)
    steps = min(ahead.steps for ahead in known)
    judged = sorted(s for s, a in plan.items() if a and a.steps == steps and a.is_judged)
    return Burst(steps, judged, known[0].may_end)


class Queue:
    """A worker and the commands that it has yet to answer."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._sent: deque[tuple[int, Command]] = deque()
        self._step_s: float | None = None
        """Of the latest step, by its own metrics; none: not known yet."""

    def is_next(self, name: str, arguments: tuple[object, ...]) -> bool:
        """Whether this is what the worker answers next."""
        return bool(self._sent) and self._sent[0][1] == (name, arguments)

    def holds_steps(self) -> bool:
        """Whether steps were sent that nobody has seen."""
        return any(name == "train_step" for _, (name, _) in self._sent)

    def send(self, name: str, *arguments: object) -> int:
        """Send a command whose reply is never waited for, or by its number."""
        return self._worker.send(name, *arguments)

    def ask(self, name: str, *arguments: object) -> Any:
        """Send a command and wait for its reply."""
        self.settle()
        return self._worker.ask(name, *arguments)

    def send_one(self, name: str, arguments: tuple[object, ...]) -> None:
        """Send a command to be answered by :meth:`receive`."""
        self.settle()
        self._sent.append((self._worker.send(name, *arguments), (name, arguments)))

    def send_burst(self, chain: Burst) -> None:
        """Send steps ahead, as many as are done within seconds."""
        self.settle()
        most = 1 if self._step_s is None else max(1, int(MOST_S / max(self._step_s, 1e-3)))
        commands = chain.commands(most)
        numbers = self._worker.send_chain(commands, chain.halts)
        self._sent.extend(zip(numbers, commands, strict=True))

    def receive(self) -> Any:
        """The next reply; none where its command was skipped, and then nothing is left in the queue.

        Raises what the command raised, with the rest dropped.
        """
        number, (name, _) = self._sent.popleft()
        try:
            value = self._worker.receive(number)
        except BaseException:
            self.drop_all()
            raise
        if isinstance(value, Skipped):
            self.drop_all()
            return None
        if name == "train_step":
            self._step_s = sum(metrics.values.get("time/step_s", 0.0) for metrics in value)
        return value

    def settle(self) -> None:
        """Pass over what was sent and is not wanted: commands that were skipped, or evaluations."""
        while self._sent:
            name = self._sent[0][1][0]
            if self.receive() is not None and name == "train_step":
                raise AssertionError("a worker went on although something was to be decided")

    def drop_all(self) -> None:
        """Forget what was sent: its replies are passed over, whatever they are."""
        self._sent.clear()

    def close(self) -> None:
        """End the process."""
        self.drop_all()
        self._worker.close()
