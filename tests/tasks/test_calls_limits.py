from __future__ import annotations

import re
import signal
import threading
import time

import pytest

from kltune.tasks.calls_limits import OverTimeError, within


def test_a_call_in_time_gives_its_result_and_leaves_the_alarm_as_it_was() -> None:
    before = signal.getsignal(signal.SIGALRM)
    assert within(5.0, lambda: 3) == 3
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_waiting_and_computing_and_a_regular_expression_are_interrupted() -> None:
    def compute() -> None:
        while True:
            pass

    # Backtracks for hours: field case of verifiers.
    def match() -> None:
        re.fullmatch(r"(a+)+b", "a" * 60)

    for call in (lambda: time.sleep(60), compute, match):
        start = time.monotonic()
        with pytest.raises(OverTimeError):
            within(0.1, call)
        assert time.monotonic() - start < 5.0


def test_a_function_that_catches_everything_is_interrupted_again() -> None:
    caught = 0

    def stubborn() -> None:
        nonlocal caught
        while caught < 2:
            try:
                time.sleep(60)
            except BaseException:  # noqa: BLE001
                caught += 1
        time.sleep(60)

    with pytest.raises(OverTimeError):
        within(0.05, stubborn)
    assert caught == 2


def test_an_error_of_the_call_passes() -> None:
    def raises() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        within(5.0, raises)


def test_in_another_thread_the_call_is_left_to_itself() -> None:
    results: list[object] = []
    go_on = threading.Event()

    def work() -> None:
        results.append(within(5.0, lambda: 3))
        try:
            within(0.05, go_on.wait)
        except OverTimeError as error:
            results.append(type(error))
        try:
            within(5.0, lambda: 1 // 0)
        except ZeroDivisionError as error:
            results.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    go_on.set()
    assert results == [3, OverTimeError, ZeroDivisionError]
