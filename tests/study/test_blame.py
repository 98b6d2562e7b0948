from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import OutOfMemoryFault, SlotsLostFault, TrialFault
from kltune.study.attempt import Attempt
from kltune.study.blame import blame, is_memory, words
from kltune.study.ledger import Ledger
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import StopReason
from tests.fake_bank import small_spec
from tests.small_search import ledger_of


def two_that_run(path: Path) -> tuple[Ledger, dict[int, Attempt]]:
    ledger = ledger_of(path, small_spec())
    running: dict[int, Attempt] = {}
    for slot in (0, 1):
        asked = ledger.ask()
        assert asked is not None
        folder = TrialFolder(path, asked.trial_number, 1)
        running[slot] = Attempt(slot, asked, folder, small_spec(), 0.0, step=3)
    return ledger, running


def test_a_fault_ends_the_trials_that_it_names(tmp_path: Path) -> None:
    ledger, running = two_that_run(tmp_path)
    (one,) = blame(TrialFault((1,), "no number"), running, ledger)
    assert one.attempt is running[1]
    assert (one.verdict.reason, one.verdict.detail) == (StopReason.ERROR, "no number")
    assert not one.may_retry


def test_a_fault_that_names_nobody_is_raised(tmp_path: Path) -> None:
    ledger, running = two_that_run(tmp_path)
    with pytest.raises(TrialFault, match="whose"):
        blame(TrialFault((7,), "whose?"), running, ledger)


def test_the_latest_of_several_makes_room_where_memory_is_short(tmp_path: Path) -> None:
    ledger, running = two_that_run(tmp_path)
    fault = OutOfMemoryFault((0, 1), "no room")
    (one,) = blame(fault, running, ledger)
    assert (one.attempt.slot, one.verdict.reason) == (1, StopReason.INTERRUPTED)
    assert one.verdict.detail == "out of memory with 2 trials at once; going on with 1 (no room)"
    (alone,) = blame(fault, {0: running[0]}, ledger)
    assert alone.verdict.reason is StopReason.OUT_OF_MEMORY


def test_a_trial_alone_in_a_process_that_died_is_held_to_account_the_third_time(
    tmp_path: Path,
) -> None:
    ledger, running = two_that_run(tmp_path)
    (beside, _) = blame(SlotsLostFault((0, 1), "signal 9"), running, ledger)
    assert beside.may_retry
    (alone,) = blame(SlotsLostFault((0,), "signal 9"), running, ledger)
    assert (alone.verdict.reason, alone.may_retry) == (StopReason.INTERRUPTED, True)


def test_an_error_is_told_by_its_kind_and_its_words() -> None:
    assert words(RuntimeError("CUDA out of memory")) == "RuntimeError: CUDA out of memory"
    assert words(MemoryError()) == "MemoryError"
    assert is_memory(RuntimeError("CUDA out of memory"))
    assert is_memory(MemoryError())
    assert not is_memory(RuntimeError("no"))
