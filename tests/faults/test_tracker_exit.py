"""Whatever a tracker does, the process ends within 15 s, and nothing is said with a password in it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from faulty_server import FAULTS, FaultyServer
from tracker_case import Trial

pytestmark = pytest.mark.slow
MOST_S = 15.0

# One process, so that MLflow is imported once; each mirror is closed by a thread of its own.
CODE = """
import json, socket, sys, threading, time
from pathlib import Path
from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.tracker import resolve_tracker

folder, uris = Path(sys.argv[1]), json.loads(sys.argv[2])
lookup = socket.getaddrinfo
def slow_lookup(host, *args, **more):
    if host == "hangs.invalid":
        time.sleep(3600)
    return lookup(host, *args, **more)
socket.getaddrinfo = slow_lookup

mirrors = {}
for fault, uri in uris.items():
    study = folder / fault
    mirrors[fault] = MlflowMirror(study, resolve_tracker(study, uri, {}), "kitchen", [])
    mirrors[fault].start()
deadline = time.monotonic() + 60
while "mlflow" not in sys.modules and time.monotonic() < deadline:
    time.sleep(0.1)
time.sleep(float(sys.argv[3]))
taken = {}
def close(fault):
    began = time.monotonic()
    assert not mirrors[fault].close("KILLED"), fault
    taken[fault] = time.monotonic() - began
closing = time.time()
threads = [threading.Thread(target=close, args=(fault,)) for fault in mirrors]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({"taken": taken, "closing": closing}), flush=True)
"""


def _leave(tmp_path: Path, uris: dict[str, str], wait_s: float) -> tuple[dict[str, float], float]:
    """Seconds of closing by fault, and of the whole exit; checks what was said."""
    for fault in uris:
        trial = Trial(tmp_path / fault, 1)
        trial.config()
        trial.steps(1, 1, 10)
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), json.dumps(uris), str(wait_s)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    ended = time.time()
    assert done.returncode == 0, done.stderr
    assert "S3CRET" not in done.stdout + done.stderr
    for fault in uris:
        assert f"{fault} is complete; the next start of this study sends the rest" in done.stderr
    found = json.loads(done.stdout)
    return found["taken"], ended - found["closing"]


def _check(taken: dict[str, float], whole_s: float) -> None:
    assert max(taken.values()) < MOST_S - 4
    assert whole_s < MOST_S


@pytest.mark.parametrize("wait_s", [0.0, 8.0])
def test_a_server_with_any_fault_never_holds_up_the_exit(tmp_path: Path, wait_s: float) -> None:
    with ExitStack() as stack:
        servers = {fault: stack.enter_context(FaultyServer(fault)) for fault in FAULTS}
        uris = {fault: f"http://u:S3CRET@127.0.0.1:{servers[fault].port}" for fault in FAULTS}
        uris["tls garbage"] = f"https://u:S3CRET@127.0.0.1:{servers['garbage'].port}"
        uris["tls silent"] = f"https://u:S3CRET@127.0.0.1:{servers['silent'].port}"
        uris["refused"] = "http://u:S3CRET@127.0.0.1:9"
        uris["name service hangs"] = "http://u:S3CRET@hangs.invalid:5000"
        taken, whole_s = _leave(tmp_path, uris, wait_s)
        if wait_s:  # else MLflow may not even be imported in time
            assert all(server.num_connections for server in servers.values())
    for fault, seconds in sorted(taken.items(), key=lambda item: item[1]):
        print(f"{fault}: {seconds:.1f} s")  # noqa: T201 - the table of the faults
    print(f"process: {whole_s:.1f} s")  # noqa: T201
    _check(taken, whole_s)


@pytest.mark.long  # over a minute of waiting
def test_a_locked_database_of_its_own_never_holds_up_the_exit(tmp_path: Path) -> None:
    study = tmp_path / "locked"
    study.mkdir(parents=True)
    lock = sqlite3.connect(study / "mlflow.db", isolation_level=None)
    lock.execute("CREATE TABLE experiments (artifact_location, experiment_id)")
    lock.execute("BEGIN EXCLUSIVE")
    taken, whole_s = _leave(tmp_path, {"locked": ""}, 0.0)
    lock.close()
    _check(taken, whole_s)
    print(f"locked: {taken['locked']:.1f} s, process {whole_s:.1f} s")  # noqa: T201
    assert [p.name for p in study.glob("*.broken*")] == []  # locked is not damaged
    shutil.rmtree(study)
