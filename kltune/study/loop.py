"""** The main loop **: a bank and a ledger in; trained, judged and told trials out.

Ask, admit, evaluate, train, judge, tell, refill (kltune.study.slots). Where other members work on the
study too, one that has nothing to run waits: their trials may die or fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from kltune.errors import DiskError, RunError
from kltune.study.blame import words
from kltune.study.ledger import Ledger
from kltune.study.observer import Observer
from kltune.study.search_end import SearchEnd
from kltune.study.slots import LOOK_S, Slots
from kltune.trainer.protocol import TrialBank
from kltune.trial.disk import RESERVE, remove, reserve

_SLICE_S: Final = 0.1
"""Seconds between two questions whether to stop, while nothing runs."""


def run_search(
    bank: TrialBank,
    ledger: Ledger,
    sigma_r: float | None = None,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], str | None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchEnd:
    """Run trials until the budget is used, by all members, or ``should_stop`` names a reason.

    ``should_stop`` is asked between steps. A stop checkpoints the running trials; any
    exception leaves them at their last checkpoint, and where it was the storage that could not be
    reached, at the present one. In both cases the same study goes on with them. ``sigma_r`` (units of
    the proxy) is noted in each trial's config. Raises `RunError` where training fails again and again,
    or the storage is away for too long, and `DiskError` where the study's folder takes no more.
    """
    slots = Slots(bank, ledger, sigma_r, observers, clock)
    with ledger.at_work(should_stop), reserve(ledger.opened.path):
        ledger.recover()
        waiting_s = 0.0
        try:
            while True:
                reason = should_stop()
                if reason is not None:
                    slots.interrupt(reason, is_saved=True)
                    return slots.end(reason, waiting_s)
                slots.fill_free_slots()
                if not slots.running:
                    if ledger.is_settled():
                        return slots.end(None, waiting_s)
                    before = clock()
                    _wait(min(LOOK_S, ledger.lease.seconds / 4), should_stop)
                    waiting_s += clock() - before
                    continue
                if slots.evaluate_due():
                    continue  # slots are free again
                slots.train_step()
        except DiskError as error:
            remove(ledger.opened.path / RESERVE)
            slots.meet_disk(error)
            raise
        except BaseException as error:
            is_cut_off = isinstance(error, RunError) and ledger.is_cut_off
            slots.interrupt(words(error), is_saved=is_cut_off)
            raise


def _wait(seconds: float, should_stop: Callable[[], str | None]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and should_stop() is None:
        time.sleep(min(left, _SLICE_S))
