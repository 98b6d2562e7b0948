"""A worker process: started, waited for, killed, deaf to signals. Real processes that never load torch."""

from __future__ import annotations

import operator
import os
import signal
import time

import psutil
import pytest

from kltune.errors import RunError, SpecError
from kltune.launch.worker import Worker, WorkerDiedError


class Unpickled:
    """A job that, unpickled in the worker, calls a function of the standard library."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def test_what_goes_wrong_while_a_worker_starts_is_raised_here_with_where_it_happened() -> None:
    worker = Worker(1, 1, Unpickled(operator.truediv, 1, 0))
    with pytest.raises(ZeroDivisionError) as raised:
        worker.wait_until_ready()
    (note,) = raised.value.__notes__
    assert note.startswith("In a worker process:\nTraceback")
    worker.close()
    with pytest.raises(WorkerDiedError):
        worker.send("train_step")


def refuse_the_spec() -> None:
    raise SpecError("model.base: no such folder: models/mine")


def test_a_spec_that_a_worker_refuses_is_an_error_of_the_run_which_is_under_way() -> None:
    worker = Worker(1, 1, Unpickled(refuse_the_spec))
    with pytest.raises(RunError, match=r"^model\.base: no such folder: models/mine$"):
        worker.wait_until_ready()
    worker.close()


def test_a_killed_worker_is_named_with_its_signal() -> None:
    worker = Worker(3, 1, Unpickled(time.sleep, 60))
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match=r"worker process 3 died \(signal 9\)"):
        worker.wait_until_ready()
    worker.close()


def test_a_worker_is_deaf_to_ctrl_c_and_sigterm_from_its_first_moment_on_and_ends_by_close() -> (
    None
):
    worker = Worker(1, 1, Unpickled(time.sleep, 60))
    assert worker.pid is not None
    for number in (signal.SIGTERM, signal.SIGINT) * 2:
        os.kill(worker.pid, number)
        time.sleep(0.3)
    assert psutil.Process(worker.pid).status() != psutil.STATUS_ZOMBIE
    worker.close()
    assert not psutil.pid_exists(worker.pid)


def test_our_own_signals_are_heard_as_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    worker = Worker(1, 1, Unpickled(time.sleep, 60))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    worker.close()
    worker.close()
