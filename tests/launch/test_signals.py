"""A signal asks for a stop between steps; a second one does not wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from kltune.errors import ExitCode
from kltune.launch import signals


def test_sigint_and_sigterm_each_have_their_reason_and_exit_code() -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 75)):
        heard: list[str] = []
        stop = signals.StopRequest(None, heard.append)
        with stop.listening():
            assert stop() is None
            os.kill(os.getpid(), number)
            reason = stop()
        assert reason is not None
        assert heard == [reason]
        assert signals.EXIT_CODES[reason] == code


def test_a_second_signal_stops_at_once() -> None:
    stop = signals.StopRequest(None, lambda reason: None)
    with stop.listening():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_of_before_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals.StopRequest(None, lambda reason: None).listening():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_used_up_wall_budget_is_a_reason_but_no_failure() -> None:
    stop = signals.StopRequest(0.0, lambda reason: None)
    assert stop() == signals.WALL
    assert signals.WALL not in signals.EXIT_CODES
    assert ExitCode.DONE not in signals.EXIT_CODES.values()


CHILDREN = """
import multiprocessing, subprocess, sys, time
from kltune.launch.signals import StopRequest
from kltune.launch import worker_process

def children():
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    forked.start()
    started = subprocess.Popen(["sleep", "60"])
    time.sleep(0.3)
    forked.terminate(), started.terminate()
    forked.join(10)
    print(forked.exitcode, started.wait(10), flush=True)
    forked.kill(), started.kill()

if sys.argv[1] == "main":
    stop = StopRequest(None, print)
    with stop.listening():
        children()
    assert stop() is None
else:
    worker_process._leave_signals_to_the_main_process()
    children()
"""


@pytest.mark.parametrize("where", ["main", "worker"])
def test_processes_that_a_reward_starts_can_be_terminated(where: str) -> None:
    command = [sys.executable, "-c", CHILDREN, where]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["-15", "-15"]


def test_in_another_thread_no_handler_is_set_and_the_budget_still_counts() -> None:
    before = signal.getsignal(signal.SIGINT)
    heard: list[object] = []

    def search() -> None:
        stop = signals.StopRequest(0.0, lambda reason: None)
        with stop.listening():
            heard.extend([stop(), signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert heard == [signals.WALL, before]
