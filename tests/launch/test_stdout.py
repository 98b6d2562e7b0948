"""With a reserved stdout nothing but the result gets there, whoever prints."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os, sys
from kltune.launch.stdout import reserved_stdout
with reserved_stdout(is_reserved={reserved}) as result:
    print("noise of python")
    os.system("echo noise of a child")
    os.write(1, b"noise of c\\n")
    result.write("result\\n")
print("after")
"""


def run(*, reserved: bool) -> subprocess.CompletedProcess[str]:
    code = CODE.format(reserved=reserved)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_prints_of_python_children_and_c_go_to_stderr() -> None:
    done = run(reserved=True)
    assert done.stdout == "result\nafter\n"
    assert done.stderr.count("noise") == 3


def test_without_a_reservation_stdout_is_as_usual() -> None:
    assert run(reserved=False).stdout.count("noise") == 3
