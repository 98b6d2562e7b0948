from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.postgres_case import running

ROOT = Path(__file__).parents[1]
PROGRAM = """
import os, time
from tests.postgres_case import running
server = running()
pid = os.fork()  # a child that outlives its parent does not keep the server
if pid:
    print(server.folder, server.port, pid, flush=True)
time.sleep(300)
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_ends_with_the_process_that_started_it_however_that_ends() -> None:
    if isinstance(why := running(), str):
        pytest.skip(why)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder, _, child = owner.stdout.readline().split()
        server = int((Path(folder) / "data/postmaster.pid").read_text().splitlines()[0])
        try:
            assert is_alive(server)
            owner.kill()
            until = time.monotonic() + 20
            while is_alive(server) or Path(folder).exists():
                assert time.monotonic() < until
                time.sleep(0.05)
        finally:
            os.kill(int(child), signal.SIGKILL)
