from __future__ import annotations

import threading
import time

import pytest

from kltune.metrics.outage import TrackerOutage
from kltune.metrics.patience import Patience


def test_an_answer_in_time_is_passed_on_and_so_is_an_error() -> None:
    patience = Patience(is_bounded=True)
    before = patience.moved_at()
    assert patience.ask(lambda: 5) == 5
    assert patience.moved_at() > before
    with pytest.raises(KeyError):
        patience.ask(lambda: {}["x"])

    def times_out() -> None:
        raise TimeoutError("the socket's own")

    with pytest.raises(TimeoutError, match="the socket's own"):
        patience.ask(times_out)
    assert patience.cpu_s > 0


def test_a_question_without_an_answer_is_left_behind() -> None:
    patience = Patience(is_bounded=True)
    over = threading.Event()
    start = time.monotonic()
    with pytest.raises(TrackerOutage, match=r"no answer within 0\.1 s"):
        patience.ask(lambda: over.wait(60), 0.1)
    assert time.monotonic() - start < 2
    assert patience.ask(lambda: 5) == 5  # by another thread
    over.set()


def test_no_more_than_a_few_are_left_behind_until_they_end() -> None:
    patience = Patience(is_bounded=True)
    over = threading.Event()
    for _ in range(8):
        with pytest.raises(TrackerOutage, match="no answer"):
            patience.ask(lambda: over.wait(60), 0.01)
    with pytest.raises(TrackerOutage, match="8 requests are still without an answer"):
        patience.ask(lambda: 5)
    over.set()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            assert patience.ask(lambda: 5) == 5
            break
        except TrackerOutage:
            time.sleep(0.02)
    else:
        raise AssertionError("it never asked again")


def test_a_file_on_this_machine_is_asked_in_the_callers_thread() -> None:
    patience = Patience(is_bounded=False)
    assert patience.ask(threading.get_ident, 0.0) == threading.get_ident()


def test_work_of_this_machine_counts_as_getting_on() -> None:
    patience = Patience(is_bounded=True)
    begun = time.monotonic()
    with patience.working():
        time.sleep(0.05)
        assert patience.moved_at() >= begun + 0.05
    assert patience.while_working(lambda x: x + 1)(1) == 2
    moved = patience.moved_at()
    time.sleep(0.02)
    assert patience.moved_at() == moved
