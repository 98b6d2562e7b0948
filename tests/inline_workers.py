"""Workers in this process, and three of them as one bank: what dies, fails and is answered when is up to the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kltune.launch.ahead import Command
from kltune.launch.placement import Placement
from kltune.launch.worker import WorkerDiedError
from kltune.launch.worker_bank import WorkerBank
from kltune.launch.worker_process import Halts, Skipped, carried_out, is_halted
from kltune.metrics.record import StepMetrics
from kltune.spec.penalty import Penalty
from kltune.spec.trial import TrialSpec
from tests.fake_bank import FakeBank

ONE = TrialSpec(beta=0.01, penalty=Penalty.K2_LOSS, learning_rate=1e-3)
TWO = TrialSpec(beta=0.3, penalty=Penalty.K1_REWARD, learning_rate=1e-3)


class InlineWorker:
    """A worker whose bank is here; it carries a command out when it is sent, as one that is fast."""

    def __init__(self, number: int, bank: FakeBank) -> None:
        self.number = number
        self.bank = bank
        self.is_dead = False
        self.is_closed = False
        self.commands: list[tuple[str, tuple[object, ...]]] = []
        self.replies: dict[int, tuple[Any, Exception | None]] = {}

    def send(self, name: str, *arguments: object) -> int:
        self._look()
        self.commands.append((name, arguments))
        self.replies[len(self.commands)] = carried_out(self.bank, name, arguments)
        return len(self.commands)

    def send_chain(
        self, commands: Sequence[Command], halts: Halts | None, most_s: float
    ) -> list[int]:
        numbers: list[int] = []
        is_broken = False
        for name, arguments in commands:
            self._look()
            if is_broken:
                self.commands.append((name, arguments))
                self.replies[len(self.commands)] = (Skipped(), None)
            else:
                self.send(name, *arguments)
            value, error = self.replies[len(self.commands)]
            if not is_broken:
                is_broken = error is not None or is_halted(halts, name, value)
            numbers.append(len(self.commands))
        return numbers

    def receive(self, number: int):
        self._look()
        value, error = self.replies[number]
        if error is not None:
            raise error
        return value

    def ask(self, name: str, *arguments: object):
        return self.receive(self.send(name, *arguments))

    def close(self) -> None:
        self.is_closed = True

    def _look(self) -> None:
        if self.is_dead:
            raise WorkerDiedError(f"worker process {self.number} died (signal 9)")


OnStep = Callable[[int, int], None]


class Trio:
    """Three workers of two slots each."""

    def __init__(
        self, slots: int = 6, on_step: OnStep | None = None, *, is_restarted: bool = False
    ) -> None:
        self.on_step = on_step
        per_worker = [len(range(worker, slots, 3)) for worker in range(3)]
        self.banks = [FakeBank(count, on_step=on_step) for count in per_worker]
        self.workers = [InlineWorker(number, self.banks[number]) for number in range(3)]
        restart = self.restarted if is_restarted else None
        self.bank = WorkerBank(self.workers, Placement(3, slots, 1), restart)

    def restarted(self, number: int) -> InlineWorker:
        old = self.banks[number]
        self.banks[number] = FakeBank(old.num_slots, on_step=self.on_step)
        self.workers[number] = InlineWorker(number, self.banks[number])
        return self.workers[number]

    def fill(self, spec: TrialSpec = ONE) -> None:
        for slot in self.bank.free_slots():
            self.bank.admit(slot, 10 + slot, spec, None)

    def local_of(self, number: int) -> int:
        """In the slot numbers of its own worker."""
        held = self.banks[(number - 10) % 3]._slots
        return next(slot for slot, trial in held.items() if trial.trial_number == number)


def steps_of(measured: tuple[StepMetrics, ...]) -> dict[int, tuple[int, int]]:
    return {m.slot: (m.trial_number, m.step) for m in measured}


def never(metrics: StepMetrics) -> bool:
    return False
