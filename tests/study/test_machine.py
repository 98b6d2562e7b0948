from __future__ import annotations

import os
import platform
import subprocess
import sys

from kltune.study.machine import is_same_system, lives, this_machine


def test_a_machine_has_one_name_that_is_not_its_host_s() -> None:
    assert this_machine() == this_machine()
    assert platform.node() not in this_machine()


def test_a_process_lives_until_it_was_waited_for() -> None:
    assert lives(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert not lives(process.pid)
    assert lives(10**30)  # no number of a process: nothing is known of it


def test_containers_of_one_system_are_one_system() -> None:
    boot = this_machine().partition("/")[0]
    assert is_same_system(this_machine())
    assert is_same_system(f"{boot}/pid:[2]")
    assert not is_same_system("b1/pid:[2]")
