"""Worker processes in, one bank over all their slots out; this process only coordinates.

Slot s belongs to worker s % W, as its slot s // W. Steps that nothing can come between are sent to
a worker ahead of time, so that none waits for the others at every step; what they measured is
handed out in rounds, one step of every slot at a time and in the order of workers. So nothing
depends on who is first, and a search is that of one process.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kltune.errors import KltuneError, RunError, SlotsLostFault, TrialFault
from kltune.launch.ahead import Queue, burst
from kltune.launch.placement import Placement, slots_of, worker_of
from kltune.launch.restarts import RESTARTS, Restarts
from kltune.launch.worker import Worker, WorkerDiedError
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.trial import TrialSpec
from kltune.trainer.protocol import Ahead


class WorkerBank:
    """A :class:`kltune.trainer.protocol.TrialBank` over the banks of W processes.

    **Faults.** Where some workers fail in a round and others don't, what the healthy ones
    measured is returned, and the fault is raised by the next call that concerns its slots, before
    that call changes anything. So no step of a healthy trial is lost or made twice.

    **A worker that dies**, or fails with an error that blames no trial, loses its trials by a
    :class:`kltune.errors.SlotsLostFault`; it is started anew, its slots are free again, and the trials
    go on from their checkpoints. One that died with several trials takes one at a time from then on:
    should one of them be to blame, it dies alone the next time, and if memory was short, less is
    needed. One that dies again and again (`Restarts`), or can't start, takes its slots with it.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        placement: Placement,
        restart: Callable[[int], Worker] | None = None,
    ) -> None:
        """``workers``: their banks stand. ``restart`` starts one anew and waits; may raise `WorkerDiedError`."""
        assert len(workers) == placement.workers
        self._queues = {worker.number: Queue(worker) for worker in workers}
        self._placement = placement
        self._restart = restart
        self._restarts = Restarts()
        self._live = set(range(placement.slots))
        self._occupied: dict[int, int] = {}
        """Trial numbers by slot."""
        self._orphans: set[int] = set()
        """Occupied slots whose trial died with its worker."""
        self._faults: list[TrialFault] = []
        self._plan: dict[int, Ahead] = {}
        # Should nobody close us, the interpreter would wait for processes that wait for it.
        atexit.register(self.close)

    @property
    def num_slots(self) -> int:
        """Trials at once over all workers that are left."""
        return len(self._live)

    def free_slots(self) -> tuple[int, ...]:
        """Slots without a trial, lowest first."""
        return tuple(sorted(self._live - self._occupied.keys()))

    def admit(self, slot: int, trial_number: int, spec: TrialSpec, resume_from: Path | None) -> int:
        """Start ``spec`` in a free slot, or continue it from a checkpoint; return the steps done."""
        assert slot in self.free_slots(), f"slot {slot} is taken or gone"
        self._occupied[slot] = trial_number
        try:
            step: int = self._ask(slot, "admit", trial_number, spec, resume_from)
        except Exception:
            del self._occupied[slot]
            self._orphans.discard(slot)
            raise
        return step

    def foresee(self, plan: Mapping[int, Ahead]) -> None:
        """What each slot's next calls will be; steps that are under way already are not changed by it."""
        self._plan = dict(plan)

    def train_step(self) -> tuple[StepMetrics, ...]:
        """One step of every occupied slot, in all workers at once."""
        self._raise_kept(self._occupied.keys())
        busy = sorted({self._place(slot)[0] for slot in self._occupied.keys() - self._orphans})
        return self._together("train_step", dict.fromkeys(busy, ()))

    def evaluate(self, slots: Sequence[int]) -> tuple[EvalMetrics, ...]:
        """Judge ``slots`` on the select prompts, in all workers at once."""
        self._raise_kept(slots)
        places = [self._place(slot) for slot in sorted(set(slots) - self._orphans)]
        asked = {w: ([local for other, local in places if other == w],) for w, _ in places}
        return self._together("evaluate", asked)

    def catch_up(self) -> tuple[StepMetrics, ...]:
        """One step of each slot that was taken ahead of :meth:`train_step`; nothing where there is none left."""
        ahead = {w: () for w, queue in sorted(self._queues.items()) if queue.holds_steps()}
        return self._together("train_step", ahead, is_new=False) if ahead else ()

    def save_checkpoint(self, slot: int, folder: Path) -> None:
        """Write everything that continues the slot's trial."""
        self._ask(slot, "save_checkpoint", folder)

    def save_adapter(self, slot: int, folder: Path) -> None:
        """Write the slot's trained weights alone."""
        self._ask(slot, "save_adapter", folder)

    def evict(self, slot: int) -> None:
        """Empty a slot; of a worker that died there is nothing left to empty."""
        self._occupied.pop(slot, None)
        self._faults = [left for f in self._faults if (left := _without(f, slot)) is not None]
        worker, local = self._place(slot)
        if slot in self._orphans:
            self._orphans.discard(slot)
        elif worker in self._queues:
            try:
                self._queues[worker].drop_all()
                self._queues[worker].send("evict", local)  # nothing to wait for
            except WorkerDiedError as died:
                self._keep_lost(worker, died)

    def shrink(self, slot: int) -> None:
        """Give an empty slot up; a process without slots ends, which frees its memory."""
        assert slot in self.free_slots(), f"slot {slot} is taken or gone"
        self._live.discard(slot)
        worker = self._place(slot)[0]
        if not any(self._place(left)[0] == worker for left in self._live):
            self._queues.pop(worker).close()

    def close(self) -> None:
        """End the processes: all of them, though a second Ctrl-C may interrupt the end of one."""
        with ExitStack() as ending:
            ending.callback(atexit.unregister, self.close)
            for queue in self._queues.values():
                ending.callback(queue.close)
            self._queues = {}

    def _place(self, slot: int) -> tuple[int, int]:
        return worker_of(slot, self._placement.workers)

    def _global(self, worker: int, local: int) -> int:
        return local * self._placement.workers + worker

    def _ask(self, slot: int, name: str, *arguments: object) -> Any:
        """One command about one slot, answered by its worker alone."""
        self._raise_kept([slot])
        worker, local = self._place(slot)
        try:
            return self._queues[worker].ask(name, local, *arguments)
        except (WorkerDiedError, RuntimeError, MemoryError) as died:
            raise self._lose(worker, died) from died
        except TrialFault as fault:
            raise self._translated(worker, fault) from fault

    def _together(
        self, name: str, calls: Mapping[int, tuple[object, ...]], *, is_new: bool = True
    ) -> tuple[Any, ...]:
        """One command to several workers at once, given by its arguments; their metrics by slot.

        ``is_new``: where a worker has not been sent it ahead, it is sent now.

        Raises:
            TrialFault: nothing was measured; of several faults the others wait for the next call.
        """
        called: list[int] = []
        for worker in sorted(calls):
            try:
                if is_new and not self._queues[worker].is_next(name, calls[worker]):
                    self._send(worker, name, calls[worker])
                called.append(worker)
            except WorkerDiedError as died:
                self._keep_lost(worker, died)
        measured: list[Any] = []
        for worker in called:
            measured += self._answer(worker, name, calls[worker], is_new=is_new)
        if not measured and self._faults:
            raise self._faults.pop(0)
        return tuple(sorted(measured, key=lambda metrics: metrics.slot))

    def _send(self, worker: int, name: str, arguments: tuple[object, ...]) -> None:
        queue = self._queues[worker]
        if name != "train_step":
            queue.send_one(name, arguments)
            return
        places = [(slot, *self._place(slot)) for slot in self._occupied.keys() - self._orphans]
        queue.send_burst(burst({at: self._plan.get(slot) for slot, w, at in places if w == worker}))

    def _answer(
        self, worker: int, name: str, arguments: tuple[object, ...], *, is_new: bool
    ) -> list[Any]:
        """What a worker measured, by our slots; nothing where its trials can't go on, which is kept."""
        try:
            found = self._queues[worker].receive()
            if found is None and is_new:  # a step before gave reason to look first
                self._send(worker, name, arguments)
                found = self._queues[worker].receive()
        except (WorkerDiedError, RuntimeError, MemoryError) as died:
            self._keep_lost(worker, died)
            return []
        except TrialFault as fault:
            self._faults.append(self._translated(worker, fault))
            return []
        return [replace(m, slot=self._global(worker, m.slot)) for m in found or ()]

    def _translated(self, worker: int, fault: TrialFault) -> TrialFault:
        slots = tuple(self._global(worker, local) for local in fault.slots)
        return type(fault)(slots, str(fault))

    def _raise_kept(self, slots: Iterable[int]) -> None:
        for fault in self._faults:
            if not set(fault.slots).isdisjoint(slots):
                self._faults.remove(fault)
                raise fault

    def _keep_lost(self, worker: int, died: Exception) -> None:
        fault = self._lose(worker, died)
        if fault.slots:
            self._faults.append(fault)

    def _lose(self, worker: int, died: Exception) -> SlotsLostFault:
        """Start a dead or broken worker anew, or take its slots away; name those that had a trial.

        Raises:
            RunError: it was the last one.
        """
        self._queues.pop(worker).close()
        gone = {slot for slot in self._live if self._place(slot)[0] == worker}
        lost = sorted(gone & self._occupied.keys() - self._orphans)
        is_counted = self._restarts.note(worker, [self._occupied[slot] for slot in lost])
        told = self._start_again(worker, is_counted=is_counted)
        is_back = worker in self._queues
        if not is_back:
            self._live -= gone
            told += f", {len(self._live)} slot{'s' * (len(self._live) != 1)} left"
        elif len(lost) > 1:
            self._live -= gone - {min(gone)}
            told += ", with one trial at a time"
        what = str(died)
        if not isinstance(died, WorkerDiedError):
            what = f"worker process {worker} failed: {type(died).__name__}: {died}"
        if not self._live:
            raise RunError(f"{what}; no worker is left") from died
        self._orphans.update(lost)
        return SlotsLostFault(tuple(lost), f"{what}; {told}")

    def _start_again(self, worker: int, *, is_counted: bool) -> str:
        """Start a worker anew where that may help; say what was done."""
        if self._restart is None:
            return "given up"
        if not self._restarts.may_restart(worker):
            return f"given up after {RESTARTS} restarts"
        try:
            self._queues[worker] = Queue(self._restart(worker))
        except (WorkerDiedError, KltuneError, RuntimeError, MemoryError, OSError) as error:
            return f"given up, since it could not be started again ({error})"
        count = f" ({self._restarts.used(worker)} of {RESTARTS})" if is_counted else ""
        return f"started again{count}"


def start_all(placement: Placement, start: Callable[[int, int], Worker]) -> WorkerBank:
    """Start every worker of a placement at once, by ``start(number, slots)``, and join them.

    Raises:
        WorkerDiedError: one could not start; all are closed.
    """
    workers: list[Worker] = []

    def again(number: int) -> Worker:
        worker = start(number, slots_of(number, placement))
        try:
            worker.wait_until_ready()
        except BaseException:
            worker.close()
            raise
        return worker

    try:
        for number in range(placement.workers):
            workers.append(start(number, slots_of(number, placement)))
        for worker in workers:
            worker.wait_until_ready()
    except BaseException:
        for worker in workers:
            worker.close()
        raise
    return WorkerBank(workers, placement, again)


def _without(fault: TrialFault, slot: int) -> TrialFault | None:
    """The fault for its other slots, if there are any."""
    left = tuple(other for other in fault.slots if other != slot)
    return type(fault)(left, str(fault)) if left else None
