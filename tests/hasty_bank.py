"""A fake bank that works ahead of its caller as far as it may."""

from __future__ import annotations

from collections.abc import Mapping

from kltune.metrics.record import StepMetrics
from kltune.trainer.protocol import Ahead
from tests.fake_bank import FakeBank


class HastyBank(FakeBank):
    """Works ahead as far as it may, whenever it is told how far."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.done: list[tuple[StepMetrics, ...]] = []

    def foresee(self, plan: Mapping[int, Ahead]) -> None:
        super().foresee(plan)
        if self.done or len(plan) < len(self._slots) or not plan:
            return
        for _ in range(min(ahead.steps for ahead in plan.values())):
            self.done.append(super().train_step())
            if any(plan[m.slot].may_end(m) for m in self.done[-1]):
                return

    def train_step(self) -> tuple[StepMetrics, ...]:
        return self.done.pop(0) if self.done else super().train_step()

    def catch_up(self) -> tuple[StepMetrics, ...]:
        return self.done.pop(0) if self.done else ()
