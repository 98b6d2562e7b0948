"""** The main loop **: a bank and a ledger in; trained, judged and told trials out.

Ask, admit, evaluate, train, judge, tell, refill. The record of an event is on disk before
anyone is told of it. Everything that a person reads about an end is the verdict's detail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from kltune.errors import OutOfMemoryFault, RunError, SlotsLostFault, TrialFault
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.study.attempt import Attempt
from kltune.study.ledger import Asked, Ledger
from kltune.study.observer import Admitted, Observer
from kltune.study.search_end import SearchEnd
from kltune.trainer.protocol import TrialBank
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import STATE_OF, StopReason, TrialState, Verdict

T = TypeVar("T")


def run_search(
    bank: TrialBank,
    ledger: Ledger,
    sigma_r: float | None = None,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], str | None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchEnd:
    """Run trials until the budget is used or ``should_stop`` names a reason.

    ``should_stop`` is asked between steps. A stop checkpoints the running trials; any
    exception leaves them at their last checkpoint. In both cases the same study goes on
    with them. ``sigma_r`` (units of the proxy) is noted in each trial's config. Raises
    `RunError` where training fails again and again.
    """
    search = _Search(bank, ledger, sigma_r, observers, clock)
    ledger.recover()
    try:
        while True:
            reason = should_stop()
            if reason is not None:
                search.interrupt(reason, is_saved=True)
                return search.end(reason)
            search.fill_free_slots()
            if not search.running:
                return search.end(None)
            if search.evaluate_due():
                continue  # slots are free again
            search.train_step()
    except BaseException as error:
        search.interrupt(_words(error), is_saved=False)
        raise


class _Search:
    """The state of one session: which attempt is in which slot."""

    def __init__(
        self,
        bank: TrialBank,
        ledger: Ledger,
        sigma_r: float | None,
        observers: Sequence[Observer],
        clock: Callable[[], float],
    ) -> None:
        self._bank = bank
        self._ledger = ledger
        self._spec = ledger.opened.spec
        self._sigma_r = sigma_r
        self._observers = observers
        self._clock = clock
        self._started_at = clock()
        self._trainer_s = 0.0
        self._trials_ended = 0
        self._failures_in_a_row = 0
        self._may_ask = True  # not after "the budget is used", until a trial ends
        self.running: dict[int, Attempt] = {}

    def fill_free_slots(self) -> None:
        """Ask for trials until every slot has one or the budget is used."""
        while self._may_ask and (free := self._bank.free_slots()):
            asked = self._ledger.ask()
            if asked is None:
                self._may_ask = False
                return
            self._admit(free[0], asked)

    def evaluate_due(self) -> bool:
        """Evaluate the slots that are due; end those that are stopped, done or beaten. True if any ended."""
        before = len(self.running)
        self._evaluate([slot for slot, attempt in self.running.items() if attempt.is_due()])
        for attempt in list(self.running.values()):
            verdict = attempt.heed(attempt.evaluation_alarms(), self._observers) or attempt.done()
            if verdict is None and attempt.is_evaluated():
                verdict = self._ledger.judge_peers(attempt.asked, attempt.step)
            if verdict is not None:
                self._finish(attempt, verdict)
        return len(self.running) < before

    def train_step(self) -> None:
        """One step of every slot; end those that a guard stops."""
        self._bank.foresee({slot: a for slot, at in self.running.items() if (a := at.ahead())})
        measured = self._try(self._bank.train_step)
        if measured is None:
            return
        self._failures_in_a_row = 0
        self._take_steps(measured)
        self._ledger.renew([attempt.asked for attempt in self.running.values()])

    def interrupt(self, detail: str, *, is_saved: bool) -> None:
        """Let go of the running trials so that they can go on later."""
        while is_saved and (measured := self._try(self._bank.catch_up)):
            self._take_steps(measured)
        for attempt in list(self.running.values()):
            if is_saved:
                self._save(self._bank.save_checkpoint, attempt, attempt.folder.last_checkpoint)
            if self.running.get(attempt.slot) is attempt:
                self._finish(attempt, Verdict(StopReason.INTERRUPTED, detail))

    def end(self, reason: str | None) -> SearchEnd:
        """Sum up."""
        wall_s = self._clock() - self._started_at
        return SearchEnd(reason, self._trials_ended, wall_s, self._trainer_s)

    def _admit(self, slot: int, asked: Asked) -> None:
        folder = TrialFolder(self._ledger.opened.path, asked.trial_number, asked.attempt)
        attempt = Attempt(slot, asked, folder, self._spec, self._clock(), step=0)
        folder.write_config(
            asked.setting, asked.origin, self._sigma_r, self._spec.kl_unit, self._spec.beta_unit
        )
        self.running[slot] = attempt
        step = self._try(
            lambda: self._bank.admit(slot, asked.trial_number, asked.setting, asked.resume_from)
        )
        if step is None:
            return
        attempt.step = step
        folder.append_event("resumed" if step > 0 else "started", step)
        if step > 0:
            attempt.recall()
            for earlier, standing in attempt.standings().items():
                self._ledger.report(asked, earlier, standing)
        event = Admitted(
            slot, asked.trial_number, asked.attempt, asked.origin, asked.setting, step, folder.path
        )
        for observer in self._observers:
            observer.admitted(event)
        if step > 0:
            self._heed_step(attempt)  # a crash may have hit between a guard's stop and its record

    def _take_steps(self, measured: Sequence[StepMetrics]) -> None:
        for metrics in measured:
            attempt = self.running.get(metrics.slot)
            if attempt is None:
                continue  # a fault beside it has ended its trial meanwhile
            attempt.advance(metrics)
            attempt.folder.append_step(metrics)
            for observer in self._observers:
                observer.stepped(metrics)
            self._heed_step(attempt)

    def _heed_step(self, attempt: Attempt) -> None:
        verdict = attempt.heed(attempt.step_alarms(self._clock()), self._observers)
        if verdict is not None:
            self._finish(attempt, verdict)

    def _evaluate(self, slots: Sequence[int]) -> None:
        """Judge ``slots`` on the select prompts; a faulty one is ended and the rest tried again."""
        measured = None
        while measured is None and (slots := [slot for slot in slots if slot in self.running]):
            measured = self._try(lambda slots=slots: self._bank.evaluate(slots))
        for metrics in measured or ():
            if metrics.slot in self.running:
                self._take_evaluation(self.running[metrics.slot], metrics)

    def _take_evaluation(self, attempt: Attempt, metrics: EvalMetrics) -> None:
        is_best = attempt.take_evaluation(metrics)
        attempt.folder.append_eval(metrics)
        if is_best:
            self._save(self._bank.save_adapter, attempt, attempt.folder.best_adapter)
        if metrics.step > 0:
            self._save(self._bank.save_checkpoint, attempt, attempt.folder.last_checkpoint)
        if self.running.get(attempt.slot) is not attempt:
            return  # its worker died before all was saved
        for observer in self._observers:
            observer.evaluated(metrics)
        standing = attempt.standings().get(metrics.step)
        if standing is None or self._ledger.report(attempt.asked, metrics.step, standing):
            return
        detail = f"ended from outside, in Optuna's storage, by step {metrics.step}"
        self._finish(attempt, Verdict(StopReason.ERROR, detail))

    def _finish(self, attempt: Attempt, verdict: Verdict, *, may_retry: bool = True) -> None:
        """Judge once more where it counts, tell, record, and empty the slot."""
        is_judged = STATE_OF[verdict.reason] is TrialState.COMPLETE
        is_sound = verdict.reason is not StopReason.DIVERGED
        if is_judged and is_sound and not attempt.is_evaluated():
            self._evaluate([attempt.slot])
            if self.running.get(attempt.slot) is not attempt:
                return  # the evaluation itself ended it
        # What shows the set-up to be at fault would show it again.
        may_retry = may_retry and verdict.reason is not StopReason.NEGATIVE_KL
        outcome = attempt.outcome(verdict)
        attempt.folder.append_outcome(outcome)
        self._ledger.tell(attempt.asked, outcome, may_retry=may_retry)
        del self.running[attempt.slot]
        self._may_ask = True
        if attempt.slot not in self._bank.free_slots():
            self._bank.evict(attempt.slot)
        self._trials_ended += STATE_OF[outcome.verdict.reason] is not TrialState.INTERRUPTED
        for observer in self._observers:
            observer.ended(outcome)

    def _save(self, how: Callable[[int, Path], None], attempt: Attempt, folder: Path) -> None:
        """Let the bank write to ``folder``; a trial whose slot is lost by now is ended."""
        if self.running.get(attempt.slot) is not attempt:
            return
        try:
            with self._in_trainer():
                how(attempt.slot, folder)
        except TrialFault as fault:
            self._fail(fault)

    def _try(self, call: Callable[[], T]) -> T | None:
        """Call the bank; none where it failed, with the trials concerned ended."""
        try:
            with self._in_trainer():
                return call()
        except TrialFault as fault:
            self._fail(fault)
        except (RuntimeError, MemoryError) as error:
            self._fail_all(error)
        return None

    def _fail(self, fault: TrialFault) -> None:
        """End the trials that the bank names; the others are untouched."""
        blamed = [self.running[slot] for slot in fault.slots if slot in self.running]
        if not blamed:
            raise fault
        if isinstance(fault, SlotsLostFault):
            for attempt in blamed:
                is_alone = len(fault.slots) == 1
                verdict = self._ledger.judge_lost(attempt.asked, str(fault), is_alone=is_alone)
                may_retry = verdict.reason is StopReason.INTERRUPTED
                self._finish(attempt, verdict, may_retry=may_retry)
            return
        reason, detail = StopReason.ERROR, str(fault)
        if isinstance(fault, OutOfMemoryFault):
            reason = StopReason.OUT_OF_MEMORY
            if (count := len(self.running)) > 1:
                # Room is made by one trial less; that one has not failed, and goes on later.
                blamed, reason = blamed[-1:], StopReason.INTERRUPTED
                detail = f"out of memory with {count} trials at once; going on with {count - 1} ({fault})"
        for attempt in blamed:
            self._finish(attempt, Verdict(reason, detail), may_retry=fault.is_retried)
        if isinstance(fault, OutOfMemoryFault):
            self._hold_at_most(max(1, len(self.running)))

    def _hold_at_most(self, count: int) -> None:
        """Give up slots for the rest of the session: each call that matters makes them fewer, so it ends."""
        free = sorted(self._bank.free_slots(), reverse=True)
        for slot in free[: max(0, self._bank.num_slots - count)]:
            self._bank.shrink(slot)

    def _fail_all(self, error: RuntimeError | MemoryError) -> None:
        """End every running trial: nobody knows which one is to blame, or what state they are in."""
        self._failures_in_a_row += 1
        is_memory = isinstance(error, MemoryError) or "out of memory" in str(error).lower()
        reason = StopReason.OUT_OF_MEMORY if is_memory else StopReason.ERROR
        detail = _words(error)
        count = len(self.running)
        for attempt in list(self.running.values()):
            self._finish(attempt, Verdict(reason, detail))
        if self._failures_in_a_row > self._spec.budget.retries:
            raise RunError(
                f"training failed {self._failures_in_a_row} times in a row: {detail}"
            ) from error
        if is_memory and count > 1:
            self._hold_at_most(count - 1)

    @contextmanager
    def _in_trainer(self) -> Generator[None]:
        before = self._clock()
        try:
            yield
        finally:
            self._trainer_s += self._clock() - before


def _words(error: BaseException) -> str:
    """The error's kind, and what it says if it says anything."""
    return ": ".join(filter(None, (type(error).__name__, str(error))))
