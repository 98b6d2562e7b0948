"""This process's bank and some worker processes in, one bank over all their slots out.

Worker 0 is this process: its bank works while the others do. Slot s belongs to worker
s % W, as its slot s // W. Replies are gathered in the order of workers, so nothing depends on
who is first.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kltune.errors import SlotsLostFault, TrialFault
from kltune.launch.placement import Placement, worker_of
from kltune.launch.threads import torch_threads
from kltune.launch.worker import Worker, WorkerDiedError
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.trial import TrialSpec
from kltune.trainer.protocol import TrialBank

OWN = 0
"""Number of this process among the workers."""


class WorkerBank:
    """A :class:`kltune.trainer.protocol.TrialBank` over the banks of W processes.

    **Faults.** Where some workers fail in a round and others don't, what the healthy ones
    measured is returned, and the fault is raised by the next call that concerns its slots, before
    that call changes anything. So no step of a healthy trial is lost or made twice.

    **A worker that dies** takes its slots with it: its trials end by a
    :class:`kltune.errors.SlotsLostFault` and the slots are never free again. If every other
    process is gone, this one goes on alone.
    """

    def __init__(self, own: TrialBank, others: Sequence[Worker], placement: Placement) -> None:
        """``others`` have answered that their banks stand; :meth:`close` ends them."""
        assert len(others) + 1 == placement.workers
        self._own = own
        self._others = {worker.number: worker for worker in others}
        self._placement = placement
        self._live = set(range(placement.slots))
        self._occupied: set[int] = set()
        self._faults: list[TrialFault] = []
        self._held = ExitStack()
        self._held.enter_context(torch_threads(placement.threads))
        # Should nobody close us, the interpreter would wait for processes that wait for it.
        atexit.register(self.close)

    @property
    def num_slots(self) -> int:
        """Trials at once over all workers that are left."""
        return len(self._live)

    def free_slots(self) -> tuple[int, ...]:
        """Slots without a trial, lowest first."""
        return tuple(sorted(self._live - self._occupied))

    def admit(self, slot: int, trial_number: int, spec: TrialSpec, resume_from: Path | None) -> int:
        """Start ``spec`` in a free slot, or continue it from a checkpoint; return the steps done."""
        assert slot in self.free_slots(), f"slot {slot} is taken or gone"
        self._occupied.add(slot)
        try:
            step: int = self._ask(slot, "admit", trial_number, spec, resume_from)
        except Exception:
            self._occupied.discard(slot)
            raise
        return step

    def train_step(self) -> tuple[StepMetrics, ...]:
        """One step of every occupied slot, in all workers at once."""
        self._raise_kept(self._occupied)
        busy = sorted({self._place(slot)[0] for slot in self._occupied})
        return self._together("train_step", dict.fromkeys(busy, ()))

    def evaluate(self, slots: Sequence[int]) -> tuple[EvalMetrics, ...]:
        """Judge ``slots`` on the select prompts, in all workers at once."""
        self._raise_kept(slots)
        places = [self._place(slot) for slot in sorted(slots)]
        asked = {w: ([local for other, local in places if other == w],) for w, _ in places}
        return self._together("evaluate", asked)

    def save_checkpoint(self, slot: int, folder: Path) -> None:
        """Write everything that continues the slot's trial."""
        self._ask(slot, "save_checkpoint", folder)

    def save_adapter(self, slot: int, folder: Path) -> None:
        """Write the slot's trained weights alone."""
        self._ask(slot, "save_adapter", folder)

    def evict(self, slot: int) -> None:
        """Empty a slot; of a worker that died there is nothing left to empty."""
        self._occupied.discard(slot)
        self._faults = [left for f in self._faults if (left := _without(f, slot)) is not None]
        worker, local = self._place(slot)
        if worker == OWN:
            self._own.evict(local)
        elif worker in self._others:
            try:
                self._others[worker].send("evict", local)  # nothing to wait for
            except WorkerDiedError as died:
                self._keep_lost(worker, died)

    def shrink(self, slot: int) -> None:
        """Give an empty slot up; a process without slots ends, which frees its memory."""
        assert slot in self.free_slots(), f"slot {slot} is taken or gone"
        self._live.discard(slot)
        worker = self._place(slot)[0]
        if worker != OWN and not any(self._place(left)[0] == worker for left in self._live):
            self._others.pop(worker).close()

    def close(self) -> None:
        """End the other processes; this one computes with as many threads as before."""
        atexit.unregister(self.close)
        for worker in self._others.values():
            worker.close()
        self._others = {}
        self._held.close()

    def _place(self, slot: int) -> tuple[int, int]:
        return worker_of(slot, self._placement.workers)

    def _global(self, worker: int, local: int) -> int:
        return local * self._placement.workers + worker

    def _ask(self, slot: int, name: str, *arguments: object) -> Any:
        """One command about one slot, answered by its worker alone."""
        self._raise_kept([slot])
        worker, local = self._place(slot)
        try:
            if worker == OWN:
                return getattr(self._own, name)(local, *arguments)
            return self._others[worker].ask(name, local, *arguments)
        except WorkerDiedError as died:
            raise self._lose(worker, died) from died
        except TrialFault as fault:
            raise self._translated(worker, fault) from fault

    def _together(self, name: str, calls: Mapping[int, tuple[object, ...]]) -> tuple[Any, ...]:
        """One command to several workers at once, given by its arguments; their metrics by slot.

        Raises:
            TrialFault: nothing was measured; of several faults the others wait for the next call.
            RuntimeError, MemoryError: what a worker raised, after all have answered.
        """
        sent: dict[int, int | None] = {}
        for worker in sorted(calls, reverse=True):  # our own turn comes when the others are at work
            try:
                is_own = worker == OWN
                sent[worker] = None if is_own else self._others[worker].send(name, *calls[worker])
            except WorkerDiedError as died:
                self._keep_lost(worker, died)
        measured: list[Any] = []
        broken: Exception | None = None
        for worker, number in sorted(sent.items()):
            try:
                measured += self._answer(worker, number, name, calls[worker])
            except (RuntimeError, MemoryError) as error:
                broken = broken or error
        if broken is not None:
            raise broken
        if not measured and self._faults:
            raise self._faults.pop(0)
        return tuple(sorted(measured, key=lambda metrics: metrics.slot))

    def _answer(
        self, worker: int, number: int | None, name: str, arguments: tuple[object, ...]
    ) -> list[Any]:
        """What a worker measured, by our slots; nothing where its trials can't go on, which is kept."""
        try:
            if number is None:
                found = getattr(self._own, name)(*arguments)
            else:
                found = self._others[worker].receive(number)
        except WorkerDiedError as died:
            self._keep_lost(worker, died)
            return []
        except TrialFault as fault:
            self._faults.append(self._translated(worker, fault))
            return []
        return [replace(m, slot=self._global(worker, m.slot)) for m in found]

    def _translated(self, worker: int, fault: TrialFault) -> TrialFault:
        slots = tuple(self._global(worker, local) for local in fault.slots)
        return type(fault)(slots, str(fault))

    def _raise_kept(self, slots: Sequence[int] | set[int]) -> None:
        for fault in self._faults:
            if not set(fault.slots).isdisjoint(slots):
                self._faults.remove(fault)
                raise fault

    def _keep_lost(self, worker: int, died: WorkerDiedError) -> None:
        fault = self._lose(worker, died)
        if fault.slots:
            self._faults.append(fault)

    def _lose(self, worker: int, died: WorkerDiedError) -> SlotsLostFault:
        """Take a dead worker's slots away; name those that had a trial."""
        self._others.pop(worker).close()
        gone = {slot for slot in self._live if self._place(slot)[0] == worker}
        self._live -= gone
        if not self._live:  # our own slots were given up when there was too little memory for all
            self._live = {s for s in range(self._placement.slots) if self._place(s)[0] == OWN}
        return SlotsLostFault(tuple(sorted(gone & self._occupied)), str(died))


def _without(fault: TrialFault, slot: int) -> TrialFault | None:
    """The fault for its other slots, if there are any."""
    left = tuple(other for other in fault.slots if other != slot)
    return type(fault)(left, str(fault)) if left else None
