"""After any outage everything is there, in order, once: on a real MLflow server, and through a gate before it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from faulty_server import Gate
from tracker_case import Bench, create_all

from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.mlflow import Store
from kltune.metrics.tracker import Tracker, resolve_tracker

# MLflow's own use of SQLAlchemy, not ours.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    Store.open(Tracker(f"sqlite:///{path}", None, is_own=False))
    return Bench(path)


class RealServer:
    """``mlflow server`` on sqlite, with artifacts passed through it."""

    def __init__(self, folder: Path, empty_database: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._empty = empty_database
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.database = folder / "server.db"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        if not self.database.exists():
            shutil.copy(self._empty, self.database)
        command = f"server --host 127.0.0.1 --port {self.port} --workers 1 --serve-artifacts"
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mlflow", *command.split()),
                *("--backend-store-uri", f"sqlite:///{self.database}"),
                *("--artifacts-destination", str(self.folder / "files é")),
            ],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={"PATH": str(Path(sys.executable).parent), "MLFLOW_DISABLE_TELEMETRY": "true"},
            start_new_session=True,
        )
        log.close()
        end = time.monotonic() + 240
        while time.monotonic() < end:
            try:
                with urlopen(f"{self.uri}/health", timeout=5) as answer:
                    assert answer.status == 200
                    return
            except OSError:
                time.sleep(0.3)
        raise AssertionError((self.folder / "log").read_text())

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, bench: Bench) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("real") / "a b", bench.empty_database)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def gate(real: RealServer) -> Iterator[Gate]:
    gate = Gate(real.uri)
    yield gate
    gate.over.set()
    gate.shutdown()
    gate.server_close()


def _mirror(study: Path, uri: str, name: str) -> MlflowMirror:
    mirror = MlflowMirror(study, resolve_tracker(study, uri, {}), name, [])
    mirror.start()
    return mirror


def _runs(uri: str, name: str) -> tuple[Any, Any, dict[int, Any]]:
    from mlflow.tracking.client import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(name)
    found = client.search_runs([experiment.experiment_id])
    children = [run for run in found if "kltune.trial_number" in run.data.tags]
    (parent,) = [run for run in found if "kltune.study_key" in run.data.tags]
    by_number = {int(run.data.tags["kltune.trial_number"]): run for run in children}
    assert len(by_number) == len(children) == len(found) - 1
    return client, parent, by_number


def _check(client: Any, run: Any, last: int) -> None:
    for name, steps in {
        "ctrl/beta": list(range(1, last + 1)),
        "train/loss": [step for step in range(1, last + 1) if step != 3],
        "eval/gold": list(range(10, last + 1, 10)),
    }.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert [metric.step for metric in history] == steps, name
    folder = client.list_artifacts(run.info.run_id, "samples")
    assert len(folder) == last // 10


FAULTS = ("lost", "late", "cut", "close", "refuse", "500", "400", "404", "429", "html", "garbage")


def test_all_faults_one_after_the_other_lose_nothing(
    bench: Bench, real: RealServer, gate: Gate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = bench.study(tmp_path / "a b é")
    trial = bench.Trial(study, 1)
    trial.config()
    last = 0
    with caplog.at_level(logging.INFO):
        mirror = _mirror(study, gate.uri, "faults")
        for fault in FAULTS:
            trial.steps(1, last + 1, last + 10)
            last += 10
            gate.num_spoilt, gate.fault = 0, fault
            mirror.notice(trial.folder)
            bench.wait(lambda: gate.num_spoilt > 0, 60)
            time.sleep(0.5)
            gate.fault = None
            is_back = f"step_{last:05d}.json"
            bench.wait(lambda wanted=is_back: any(wanted in path for path in gate.paths), 60)
        trial.end(1, "complete", "done", f"all {last} steps", value=0.5)
        mirror.notice(trial.folder)
        assert mirror.close("FINISHED")
    client, parent, children = _runs(real.uri, "faults")
    _check(client, children[1], last)
    assert (parent.info.status, children[1].info.status) == ("FINISHED", "FINISHED")
    assert caplog.text.count("Training goes on") <= len(FAULTS)
    path = client.download_artifacts(children[1].info.run_id, "samples/step_00010.json")
    assert "Wie lange? é" in Path(path).read_text(encoding="utf-8")


@pytest.mark.parametrize("fault", ["lost", "late"])
def test_no_fault_at_the_creation_of_a_run_leaves_two(
    bench: Bench, real: RealServer, gate: Gate, tmp_path: Path, fault: str
) -> None:
    study = bench.study(tmp_path / "kitchen")
    for number in (1, 2):
        trial = bench.Trial(study, number)
        trial.config()
        trial.steps(1, 1, 10)
        trial.end(1, "complete", "done", "all 10 steps")
    gate.fault, gate.only = fault, "runs/create"
    mirror = _mirror(study, gate.uri, fault)
    bench.wait(lambda: gate.num_spoilt >= 1, 60)
    time.sleep(8 if fault == "late" else 2)
    gate.fault = None
    assert mirror.close("FINISHED", timeout_s=60)
    client, _, children = _runs(real.uri, fault)
    assert children.keys() == {1, 2}
    for run in children.values():
        _check(client, run, 10)


def test_a_store_of_files_that_is_down_holds_up_files_alone(
    bench: Bench, real: RealServer, gate: Gate, tmp_path: Path
) -> None:
    study = bench.study(tmp_path / "kitchen")
    gate.fault, gate.only = "500", "mlflow-artifacts"
    mirror = _mirror(study, gate.uri, "files")
    for number in (1, 2):
        trial = bench.Trial(study, number)
        trial.config()
        trial.steps(1, 1, 10)
        trial.end(1, "complete", "done", "all 10 steps")
        mirror.notice(trial.folder)

    def metrics_are_there() -> bool:
        if not any("runs/create" in path for path in gate.paths):
            return False
        children = _runs(real.uri, "files")[2]
        return [run.info.status for run in children.values()] == ["FINISHED"] * 2

    time.sleep(3)
    bench.wait(metrics_are_there, 60)
    gate.fault = None
    bench.wait(lambda: "step_00010" in json.dumps(gate.paths[-20:]), 60)
    assert mirror.close("FINISHED")
    client, parent, children = _runs(real.uri, "files")
    for run in children.values():
        _check(client, run, 10)
    assert {f.path for f in client.list_artifacts(parent.info.run_id)} == {
        "spec.yaml",
        "resolved.json",
        "env.json",
    }


def test_a_server_that_is_killed_and_comes_back_with_an_empty_database_is_filled_anew(
    bench: Bench, tmp_path: Path
) -> None:
    server = RealServer(tmp_path / "server", bench.empty_database)
    server.start()
    try:
        study = bench.study(tmp_path / "kitchen")
        trial = bench.Trial(study, 1)
        trial.config()
        trial.steps(1, 1, 10)
        mirror = _mirror(study, server.uri, "kitchen")
        bench.wait(lambda: (study / "trials/00001/mlflow.json").exists(), 60)
        time.sleep(2)
        server.kill()
        trial.steps(1, 11, 20)
        mirror.notice(trial.folder)
        time.sleep(1)
        server.database.unlink()
        server.start()
        trial.steps(1, 21, 30)
        trial.end(1, "complete", "done", "all 30 steps")
        mirror.notice(trial.folder)
        assert mirror.close("FINISHED", timeout_s=60)
        client, parent, children = _runs(server.uri, "kitchen")
        _check(client, children[1], 30)
        assert (parent.info.status, children[1].info.status) == ("FINISHED", "FINISHED")
    finally:
        server.kill()


def test_eight_studies_may_start_at_once_on_one_server(real: RealServer, tmp_path: Path) -> None:
    assert create_all(tmp_path, real.uri, "abcdefgh", is_one_study=False) == [0] * 8
    from mlflow.tracking.client import MlflowClient

    client = MlflowClient(real.uri)
    found = [e for e in client.search_experiments() if e.name == "shared"]
    assert len(found) == 1
    runs = client.search_runs([found[0].experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * 8
    assert client.search_runs(["0"]) == []
