"""A bank and settings with the step to stop at in; each trained that far and judged there, or all along, out.

The small sister of the main loop: nothing is proposed, pruned or guarded, so that every setting is
seen where it would be used. A run that can't go on by itself is tried again; the others don't
notice. The record of an event is on disk before anyone is told of it.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kltune.errors import OutOfMemoryFault, RunError, SlotsLostFault, TrialFault
from kltune.guard.finite import judge_finite
from kltune.guard.judge import StepWatch
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.study.resume import start_or_resume
from kltune.trainer.protocol import Ahead, TrialBank
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """One setting to train once."""

    number: int
    """Of its folder; kept over interruptions."""
    setting: TrialSpec
    """Its seed included."""
    stop: int
    """Steps after which it is judged; 0: untrained."""
    origin: str
    about: Mapping[str, object] = field(default_factory=dict[str, object])
    """Noted at its start, so that a later command knows what it was."""
    attempt: int = 1
    """Of its first attempt in this session."""
    along: bool = False
    """Whether it is judged every ``evaluate.every`` steps from step 0 on, as a trial is, not at its stop alone."""


@dataclass(frozen=True, slots=True)
class RepeatEnd:
    """How a session ended."""

    reason: str | None
    """Why it stopped early; none when all runs ended."""
    failed: Mapping[int, str]
    """Runs that could not be judged, by number, with what went wrong."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where runs are recorded, and in which units."""

    folder: Path
    """Holds ``runs/00000`` and so on."""
    spec: StudySpec
    sigma_r: float

    def of(self, number: int, attempt: int) -> TrialFolder:
        """The folder of one attempt."""
        return TrialFolder(self.folder, number, attempt, under="runs")


def repeat(
    bank: TrialBank,
    runs: Sequence[Run],
    where: Where,
    on_judged: Callable[[Run, EvalMetrics], None] = lambda _run, _metrics: None,
    should_stop: Callable[[], str | None] = lambda: None,
) -> RepeatEnd:
    """Train and judge ``runs`` in order, as many at a time as the bank has slots.

    ``should_stop`` is asked between steps; a stop checkpoints what runs, and the same runs go on
    from there. A run that fails is tried again ``budget.retries`` times where that can help.

    Raises:
        RunError: training fails again and again, whatever is run.
    """
    session = _Session(bank, where, deque(_Job(run, run.attempt) for run in runs), on_judged)
    while True:
        reason = should_stop()
        if reason is not None:
            session.interrupt(reason)
            return RepeatEnd(reason, session.failed)
        session.fill()
        if not session.running:
            return RepeatEnd(None, session.failed)
        if not session.judge_due():
            session.step()


@dataclass(slots=True)
class _Job:
    run: Run
    attempt: int
    failures: int = 0


@dataclass(slots=True)
class _Held:
    """A run in a slot."""

    job: _Job
    folder: TrialFolder
    step: int
    end: Verdict | None = None
    """Set where it ends before its stop."""
    judged_at: int = -1
    """Step of the last judgement."""

    def is_due(self, every: int) -> bool:
        """Whether it is to be judged before its next step."""
        run = self.job.run
        if self.end or self.step >= run.stop:
            return True
        return run.along and self.step % every == 0 and self.judged_at < self.step


@dataclass(slots=True)
class _Session:
    bank: TrialBank
    where: Where
    waiting: deque[_Job]
    on_judged: Callable[[Run, EvalMetrics], None]
    running: dict[int, _Held] = field(default_factory=dict[int, _Held])
    failed: dict[int, str] = field(default_factory=dict[int, str])
    failures_in_a_row: int = 0

    def fill(self) -> None:
        """Give every free slot a run."""
        while self.waiting and (free := self.bank.free_slots()):
            self._admit(free[0], self.waiting.popleft())

    def judge_due(self) -> bool:
        """Judge the runs that are at their stop; true if there were any."""
        every = self.where.spec.evaluate.every
        due = [slot for slot, held in self.running.items() if held.is_due(every)]
        if not due:
            return False
        for metrics in self._try(lambda: self.bank.evaluate(due)) or ():
            if metrics.slot in self.running:
                self._take(metrics)
        return True

    def step(self) -> None:
        """One step of every slot."""
        self.bank.foresee({slot: self._ahead(held) for slot, held in self.running.items()})
        measured = self._try(self.bank.train_step)
        if measured is None:
            return
        self.failures_in_a_row = 0
        self._take_steps(measured)

    def _ahead(self, held: _Held) -> Ahead:
        """Steps up to the next checkpoint or the stop."""
        every, stop = self.where.spec.evaluate.every, held.job.run.stop
        steps = max(1, min(every - held.step % every, stop - held.step))
        watch = StepWatch(None, self.where.spec.kl_unit)
        return Ahead(steps, watch, is_judged=held.job.run.along or held.step + steps >= stop)

    def _take_steps(self, measured: Sequence[StepMetrics]) -> None:
        for metrics in measured:
            held = self.running.get(metrics.slot)
            if held is None:
                continue
            held.step = metrics.step
            held.folder.append_step(metrics)
            held.end = judge_finite(metrics)
            if held.end is None and metrics.step % self.where.spec.evaluate.every == 0:
                self._save(metrics.slot, held)

    def interrupt(self, detail: str) -> None:
        """Let go of what runs so that it can go on later."""
        while measured := self._try(self.bank.catch_up):
            self._take_steps(measured)
        for slot, held in list(self.running.items()):
            self._save(slot, held)
            if slot in self.running:
                self._end(slot, Verdict(StopReason.INTERRUPTED, detail))

    def _admit(self, slot: int, job: _Job) -> None:
        run, spec = job.run, self.where.spec
        folder = self.where.of(run.number, job.attempt)
        folder.write_config(
            run.setting, run.origin, self.where.sigma_r, spec.kl_unit, spec.beta_unit
        )
        self.running[slot] = _Held(job, folder, 0)
        step = self._try(
            lambda: start_or_resume(self.bank, slot, run.setting, folder, is_again=True)
        )
        if step is None:
            return
        self.running[slot].step = step
        folder.append_event("resumed" if step else "started", step, stop=run.stop, **run.about)

    def _take(self, metrics: EvalMetrics) -> None:
        held = self.running[metrics.slot]
        held.folder.append_eval(metrics)
        held.judged_at = metrics.step
        stop = held.job.run.stop
        if held.end is None and held.step < stop:
            return
        self._end(
            metrics.slot, held.end or Verdict(StopReason.DONE, f"ran to its stop at step {stop}")
        )
        shutil.rmtree(held.folder.last_checkpoint.parent, ignore_errors=True)
        self.on_judged(held.job.run, metrics)

    def _end(self, slot: int, verdict: Verdict) -> None:
        held = self.running.pop(slot)
        is_judged = verdict.reason in (StopReason.DONE, StopReason.DIVERGED)
        held.folder.append_outcome(
            TrialOutcome(
                trial_number=held.job.run.number,
                attempt=held.job.attempt,
                verdict=verdict,
                steps_run=held.step,
                value=None,  # gold on test is in evals.jsonl; nothing is told to a search
                is_feasible=None,
                constraint=None,
                best_step=held.step if is_judged else None,
            )
        )
        if slot not in self.bank.free_slots():
            self.bank.evict(slot)

    def _save(self, slot: int, held: _Held) -> None:
        try:
            self.bank.save_checkpoint(slot, held.folder.last_checkpoint)
        except TrialFault as fault:
            self._fail(fault)

    def _try(self, call: Callable[[], T]) -> T | None:
        """Call the bank; none where it failed, with the runs concerned taken out."""
        try:
            return call()
        except TrialFault as fault:
            self._fail(fault)
        except (RuntimeError, MemoryError) as error:
            self._fail_all(error)
        return None

    def _fail(self, fault: TrialFault) -> None:
        blamed = [slot for slot in fault.slots if slot in self.running]
        if not blamed:
            raise fault
        reason, is_spared = StopReason.ERROR, isinstance(fault, SlotsLostFault)
        if isinstance(fault, OutOfMemoryFault):
            reason = StopReason.OUT_OF_MEMORY
            if len(self.running) > 1:
                # Room is made by one run less; that one has not failed.
                blamed, is_spared = blamed[-1:], True
        for slot in blamed:
            self._drop(slot, reason, str(fault), is_spared=is_spared, may_retry=fault.is_retried)
        if isinstance(fault, OutOfMemoryFault):
            self._hold_at_most(max(1, len(self.running)))

    def _fail_all(self, error: RuntimeError | MemoryError) -> None:
        """Nobody knows which run is to blame, or what state they are in."""
        self.failures_in_a_row += 1
        is_memory = isinstance(error, MemoryError) or "out of memory" in str(error).lower()
        reason = StopReason.OUT_OF_MEMORY if is_memory else StopReason.ERROR
        detail, count = f"{type(error).__name__}: {error}", len(self.running)
        for slot in list(self.running):
            self._drop(slot, reason, detail, is_spared=False, may_retry=True)
        if self.failures_in_a_row > self.where.spec.budget.retries:
            raise RunError(
                f"training failed {self.failures_in_a_row} times in a row: {detail}"
            ) from error
        if is_memory and count > 1:
            self._hold_at_most(count - 1)

    def _drop(
        self, slot: int, reason: StopReason, detail: str, *, is_spared: bool, may_retry: bool
    ) -> None:
        """Take a run out of its slot, and put it back in line where another attempt may help."""
        job = self.running[slot].job
        self._end(slot, Verdict(StopReason.INTERRUPTED if is_spared else reason, detail))
        failures = job.failures + (not is_spared)
        if not may_retry or failures > self.where.spec.budget.retries:
            self.failed[job.run.number] = detail
            return
        self.waiting.appendleft(_Job(job.run, job.attempt + 1, failures))

    def _hold_at_most(self, count: int) -> None:
        free = sorted(self.bank.free_slots(), reverse=True)
        for slot in free[: max(0, self.bank.num_slots - count)]:
            self.bank.shrink(slot)
