from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from kltune.tasks.calls_checked import ScorerEndedError
from kltune.tasks.calls_exit import REAL_EXIT, ProcessEndError, kept_alive
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import function_scorer

ONE = [Sample(Prompt("p", "q"), "a", (1,), ended=True)]


def test_an_end_of_the_process_is_an_error_even_where_it_is_swallowed() -> None:
    def end() -> None:
        with kept_alive(), contextlib.suppress(BaseException):
            os._exit(3)

    with pytest.raises(ProcessEndError, match=r"os\._exit\(3\)"):
        end()
    assert os._exit is REAL_EXIT


def test_an_end_from_a_thread_is_seen_too() -> None:
    def end() -> None:
        with contextlib.suppress(SystemExit):
            os._exit(0)

    def score(completions: list[str]) -> list[float]:
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        return [1.0] * len(completions)

    with pytest.raises(
        ScorerEndedError, match=r"scorer f would end the process: it calls os\._exit"
    ):
        function_scorer("f", score)(ONE)


def test_a_child_that_the_code_forks_ends_as_it_asks() -> None:
    code = (
        "import os\nfrom kltune.tasks.calls_exit import kept_alive\n"
        "with kept_alive():\n"
        "    pid = os.fork()\n"
        "    if pid == 0: os._exit(7)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "7\n"
