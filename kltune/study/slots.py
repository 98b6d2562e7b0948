"""The slots of a bank in; attempts that are admitted, trained, judged, saved and told out.

The record of an event is on disk before anyone is told of it. Everything that a person reads about an
end is the verdict's detail.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from kltune.errors import DiskError, OutOfMemoryFault, RunError, TrialFault
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.study.asked import Asked
from kltune.study.attempt import Attempt
from kltune.study.blame import blame, is_memory, words
from kltune.study.lease import STORAGE_ERRORS
from kltune.study.ledger import Ledger
from kltune.study.observer import Admitted, Observer
from kltune.study.resume import start_or_resume
from kltune.study.search_end import SearchEnd
from kltune.study.staging import save_staged
from kltune.trainer.protocol import TrialBank
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import STATE_OF, StopReason, TrialOutcome, TrialState, Verdict

T = TypeVar("T")

LOOK_S: Final = 5.0
"""Seconds after which a member with free slots looks again whether there is something to run."""

_logger = logging.getLogger(__name__)


class Slots:
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
        self._is_ending = False
        self._again_s = min(LOOK_S, ledger.lease.seconds / 4)
        self._ask_at = -math.inf
        """On the clock, after "nothing is due": until a trial of ours ends, or it is time to look again."""
        self.running: dict[int, Attempt] = {}

    def fill_free_slots(self) -> None:
        """Ask for trials until every slot has one or the budget is used."""
        while (free := self._bank.free_slots()) and self._clock() >= self._ask_at:
            is_first = self._ask_at == -math.inf
            asked = self._ledger.ask() if is_first or self._ledger.is_due() else None
            if asked is None:  # yet trials of other members may die or fail
                self._ask_at = self._clock() + self._again_s if self._ledger.is_shared else math.inf
                return
            self._ask_at = -math.inf
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
        for attempt in list(self.running.values()):
            if self._ledger.lease.is_lost(attempt.asked.optuna_trial.number):
                self._leave(attempt)

    def interrupt(self, detail: str, *, is_saved: bool) -> None:
        """Let go of the running trials so that they can go on later; a storage that is gone is told nothing."""
        self._is_ending = True
        while is_saved and (measured := self._try(self._bank.catch_up)):
            self._take_steps(measured)
        for attempt in list(self.running.values()):
            if is_saved:
                self._save(self._bank.save_checkpoint, attempt, attempt.folder.last_checkpoint)
            if self.running.get(attempt.slot) is attempt:
                self._finish(attempt, Verdict(StopReason.INTERRUPTED, detail))

    def meet_disk(self, error: DiskError) -> None:
        """End the trial in whose folder the disk takes no more, and let go of the others: all can go on later."""
        self._is_ending = True
        for attempt in list(self.running.values()):
            is_met = Path(error.path).is_relative_to(attempt.folder.path)
            reason = StopReason.DISK if is_met else StopReason.INTERRUPTED
            self._finish(attempt, Verdict(reason, str(error)))

    def end(self, reason: str | None, waiting_s: float = 0.0) -> SearchEnd:
        """Sum up; ``waiting_s``: as in `SearchEnd`."""
        wall_s = self._clock() - self._started_at
        return SearchEnd(reason, self._trials_ended, wall_s, self._trainer_s, waiting_s)

    def _admit(self, slot: int, asked: Asked) -> None:
        folder = TrialFolder(self._ledger.opened.path, asked.trial_number, asked.attempt)
        attempt = Attempt(slot, asked, folder, self._spec, self._clock(), step=0)
        self.running[slot] = attempt
        is_again = asked.attempt > 1
        if is_again:
            self._ledger.opened.bring(asked.trial_number)
        folder.write_config(
            asked.setting, asked.origin, self._sigma_r, self._spec.kl_unit, self._spec.beta_unit
        )
        step = self._try(
            lambda: start_or_resume(self._bank, slot, asked.setting, folder, is_again=is_again)
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
        if self._ledger.is_taken_over(attempt.asked):
            self._leave(attempt)
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
        if not self._ledger.is_ours(attempt.asked):
            self._leave(attempt)
            return
        outcome = attempt.outcome(verdict)
        attempt.record(outcome, is_best_effort=self._is_ending)
        is_told = False
        try:
            is_told = self._ledger.tell(attempt.asked, outcome, may_retry=may_retry)
        except STORAGE_ERRORS as error:
            if not self._is_ending:
                raise
            # Whoever works next finds the trial running without its worker, and goes on with it.
            _logger.warning("trial %d: its end is only on record (%s)", outcome.trial_number, error)
        if is_told and STATE_OF[outcome.verdict.reason] in (TrialState.COMPLETE, TrialState.PRUNED):
            attempt.folder.drop_last()
        self._trials_ended += STATE_OF[outcome.verdict.reason] is not TrialState.INTERRUPTED
        self._empty(attempt, outcome)

    def _leave(self, attempt: Attempt) -> None:
        """Drop a trial that another member took over: nothing more of it is told or written."""
        detail = "another worker took it over; this one had given no sign of life"
        _logger.warning("trial %d: %s", attempt.asked.trial_number, detail)
        self._ledger.let_go(attempt.asked)
        self._empty(attempt, attempt.outcome(Verdict(StopReason.INTERRUPTED, detail)))

    def _empty(self, attempt: Attempt, outcome: TrialOutcome) -> None:
        del self.running[attempt.slot]
        self._ask_at = -math.inf
        if attempt.slot not in self._bank.free_slots():
            self._bank.evict(attempt.slot)
        for observer in self._observers:
            observer.ended(outcome)

    def _save(self, how: Callable[[int, Path], None], attempt: Attempt, folder: Path) -> None:
        """Let the bank write to ``folder``; a trial whose slot is lost by now is ended."""
        if self.running.get(attempt.slot) is not attempt:
            return
        try:
            with self._in_trainer():
                if save_staged(partial(how, attempt.slot), folder, attempt.asked, self._ledger):
                    return
            self._leave(attempt)
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
        for one in blame(fault, self.running, self._ledger):
            self._finish(one.attempt, one.verdict, may_retry=one.may_retry)
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
        reason = StopReason.OUT_OF_MEMORY if is_memory(error) else StopReason.ERROR
        detail = words(error)
        count = len(self.running)
        for attempt in list(self.running.values()):
            self._finish(attempt, Verdict(reason, detail))
        if self._failures_in_a_row > self._spec.budget.retries:
            raise RunError(
                f"training failed {self._failures_in_a_row} times in a row: {detail}"
            ) from error
        if is_memory(error) and count > 1:
            self._hold_at_most(count - 1)

    @contextmanager
    def _in_trainer(self) -> Generator[None]:
        before = self._clock()
        try:
            yield
        finally:
            self._trainer_s += self._clock() - before
