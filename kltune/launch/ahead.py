"""What a worker was sent and has not answered yet: commands in, replies in their order out.

A *burst* is a chain of steps, and the evaluation that follows them, that a worker carries out without
waiting to be asked again. A step after which something may be decided breaks the chain: what is left
of it is skipped, so the weights are still those of that step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kltune.launch.worker import Worker
from kltune.launch.worker_process import Halts, Skipped
from kltune.trainer.protocol import Ahead

MOST_S = 3.0
"""Seconds of steps that are sent ahead at most: an interruption has to wait for them.

A worker leaves out what it has not begun by then, should steps have become slower; an evaluation is
sent ahead only where the last one took no longer.
"""

Command = tuple[str, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Burst:
    """Steps, and the evaluation after them, of all slots of one worker."""

    steps: int
    judged: list[int]
    """Slots of the worker that are evaluated after the last step; may be none."""
    halts: Halts | None

    def commands(self, most_steps: int, *, is_judged: bool = True) -> list[Command]:
        """Its commands, cut to ``most_steps``; the evaluation belongs to the last one, unless not ``is_judged``."""
        steps: list[Command] = [("train_step", ())] * min(self.steps, most_steps)
        if is_judged and self.steps <= most_steps and self.judged:
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

    def __init__(self, worker: Worker, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker
        self._clock = clock
        self._sent: deque[tuple[int, Command, float | None]] = deque()
        """Number, command, and when it was sent where nothing before it was left to do."""
        self._step_s: float | None = None
        """Of the latest step, by its own metrics; none: not known yet."""
        self._evaluation_s: float | None = None
        """Of the latest evaluation that was asked for directly, its scorers included, or more since; none: unknown."""

    def is_next(self, name: str, arguments: tuple[object, ...]) -> bool:
        """Whether this is what the worker answers next."""
        return bool(self._sent) and self._sent[0][1] == (name, arguments)

    def holds_steps(self) -> bool:
        """Whether steps were sent that nobody has seen."""
        return any(name == "train_step" for _, (name, _), _ in self._sent)

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
        now = self._clock()
        self._sent.append((self._worker.send(name, *arguments), (name, arguments), now))

    def send_burst(self, chain: Burst) -> None:
        """Send steps ahead, as many as are done within seconds, and the evaluation where it is quick."""
        self.settle()
        most = 1 if self._step_s is None else max(1, int(MOST_S / max(self._step_s, 1e-3)))
        is_quick = self._evaluation_s is not None and self._evaluation_s <= MOST_S
        commands = chain.commands(most, is_judged=is_quick)
        numbers = self._worker.send_chain(commands, chain.halts, MOST_S)
        self._sent.extend((n, command, None) for n, command in zip(numbers, commands, strict=True))

    def receive(self) -> Any:
        """The next reply; none where its command was skipped, and then nothing is left in the queue.

        Raises what the command raised, with the rest dropped.
        """
        number, (name, _), sent_at = self._sent.popleft()
        since = self._clock() if sent_at is None else sent_at
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
        elif name == "evaluate":
            took_s = self._clock() - since
            # Of one that was sent ahead we only see how long we had to wait for it.
            known_s = 0.0 if sent_at is not None else self._evaluation_s or 0.0
            self._evaluation_s = max(took_s, known_s)
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
