"""The study's own MLflow database locked, read-only, damaged, on a full disk: training goes on, nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tracker_case import Bench

from kltune.metrics.mlflow import Store
from kltune.metrics.tracker import Tracker

# MLflow's own use of SQLAlchemy, not ours.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    Store.open(Tracker(f"sqlite:///{path}", None, is_own=False))
    return Bench(path)


def _trial(bench: Bench, study: Path) -> Any:
    trial = bench.Trial(study, 1)
    trial.config()
    trial.steps(1, 1, 10)
    return trial


def _steps(bench: Bench, study: Path) -> list[int]:
    run_id = bench.runs(study)[1][1].info.run_id
    return [m.step for m in bench.client(study).get_metric_history(run_id, "ctrl/beta")]


def _finish(bench: Bench, mirror: Any, trial: Any) -> None:
    trial.end(1, "complete", "done", "all 20 steps")
    mirror.notice(trial.folder)
    assert mirror.close("FINISHED", timeout_s=60)
    study = trial.folder.parents[1]
    assert _steps(bench, study) == list(range(1, 21))
    parent, children = bench.runs(study)
    assert (parent.info.status, children[1].info.status) == ("FINISHED", "FINISHED")


@pytest.mark.parametrize(
    "locked_s", [pytest.param(3.0), pytest.param(60.0, marks=pytest.mark.long)]
)
def test_a_lock_of_another_process_is_waited_for(
    bench: Bench, tmp_path: Path, locked_s: float
) -> None:
    study = bench.study(tmp_path / "kitchen")
    trial = _trial(bench, study)
    with closing(sqlite3.connect(study / "mlflow.db", isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        mirror = bench.mirror(study)
        start = time.monotonic()
        mirror.start()
        trial.steps(1, 11, 20)
        mirror.notice(trial.folder)
        assert time.monotonic() - start < 1  # training waits for nothing
        time.sleep(locked_s)
        lock.execute("ROLLBACK")
    bench.wait(lambda: len(list(study.glob("trials/*/mlflow.json"))) == 1, 60)
    _finish(bench, mirror, trial)
    assert list(study.glob("*.broken*")) == []


def test_a_database_that_is_damaged_in_the_middle_makes_way_and_is_filled_anew(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = bench.study(tmp_path / "kitchen")
    trial = _trial(bench, study)
    mirror = bench.mirror(study)
    mirror.start()
    bench.wait(lambda: "step_00010" in _side(trial))
    size = (study / "mlflow.db").stat().st_size
    with (study / "mlflow.db").open("r+b") as file:
        file.write(os.urandom(size))
    trial.steps(1, 11, 20)
    mirror.notice(trial.folder)
    bench.wait(lambda: len(list(study.glob("mlflow.db.broken-*"))) == 1)
    bench.wait(lambda: "step_00020" in _side(trial))
    _finish(bench, mirror, trial)
    assert caplog.text.count("was damaged: moved to") == 1


def _side(trial: Any) -> str:
    path = trial.folder / "mlflow.json"
    return json.dumps(json.loads(path.read_text()).get("tables")) if path.exists() else ""


def test_another_schema_is_named_with_the_remedy_and_not_touched(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = bench.study(tmp_path / "kitchen")
    trial = _trial(bench, study)
    with closing(sqlite3.connect(study / "mlflow.db")) as database:
        # As an older MLflow left it: MLflow itself would take missing tables for a reason to migrate.
        database.execute("DROP TABLE logged_model_tags")
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
        database.commit()
    before = (study / "mlflow.db").read_bytes()
    mirror = bench.mirror(study)
    mirror.start()
    mirror.notice(trial.folder)
    start = time.monotonic()
    assert not mirror.close("FINISHED")
    assert time.monotonic() - start < 15
    assert "mlflow db upgrade sqlite:///" in caplog.text
    assert "Training goes on" in caplog.text
    assert (study / "mlflow.db").read_bytes() == before


SEND = """
import os, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tracker_case import Trial
from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.tracker import resolve_tracker
study = Path(sys.argv[1])
if sys.argv[3] == "limited":
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    most = (study / "mlflow.db").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
mirror = MlflowMirror(study, resolve_tracker(study, None, {}), "kitchen", [])
mirror.start()
mirror.notice(study / "trials" / "00001")
import time
end = time.monotonic() + 90
while sys.argv[3] and not mirror._is_out and time.monotonic() < end:
    time.sleep(0.1)
print(mirror.close("FINISHED", timeout_s=15 if sys.argv[3] else 90))
"""


def _send(study: Path, how: str = "") -> tuple[str, str]:
    """``how``: "limited" or "bad" where the tracker is expected to be out."""
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SEND, str(study), tests, how],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.slow
def test_a_database_that_may_not_grow_is_an_outage_and_is_filled_later(
    bench: Bench, tmp_path: Path
) -> None:
    study = bench.study(tmp_path / "kitchen")
    trial = _trial(bench, study)
    trial.steps(1, 11, 5000)  # more than the pages that are free
    trial.end(1, "complete", "done", "all 5000 steps")
    is_sent, said = _send(study, "limited")
    assert is_sent == "False"
    assert said.count("Training goes on") == 1
    assert _send(study)[0] == "True"
    assert _steps(bench, study) == list(range(1, 5001))


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a small file system")
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_an_outage_and_all_is_there_once_it_has_room(
    bench: Bench, full_disk: Path
) -> None:
    study = bench.study(full_disk / "kitchen")
    trial = _trial(bench, study)
    trial.steps(1, 11, 20)
    trial.end(1, "complete", "done", "all 20 steps")
    filler = full_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    is_sent, said = _send(study, "bad")
    assert is_sent == "False"
    assert said.count("Training goes on") == 1, said
    filler.unlink()
    assert _send(study)[0] == "True"
    assert _steps(bench, study) == list(range(1, 21))
    assert list(study.glob("*.broken*")) == []


@contextmanager
def _read_only(path: Path) -> Generator[None]:
    """No mode keeps root from writing, but a mount does."""
    if os.geteuid() != 0:
        path.chmod(0o444)
        yield
        path.chmod(0o644)
        return
    for options in (["--bind", str(path), str(path)], ["-o", "remount,ro,bind", str(path)]):
        if subprocess.run(["mount", *options], capture_output=True, check=False).returncode != 0:
            pytest.skip("root, and no file can be mounted read-only here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.slow
def test_a_read_only_database_is_an_outage_that_says_so(bench: Bench, tmp_path: Path) -> None:
    study = bench.study(tmp_path / "kitchen")
    trial = _trial(bench, study)
    trial.steps(1, 11, 20)
    with _read_only(study / "mlflow.db"):
        is_sent, said = _send(study, "bad")
    assert is_sent == "False"
    assert "readonly database" in said
    assert list(study.glob("*.broken*")) == []
    assert _send(study)[0] == "True"
    assert _steps(bench, study) == list(range(1, 21))


def test_a_thread_for_each_study_can_mirror_at_once(bench: Bench, tmp_path: Path) -> None:
    studies = [bench.study(tmp_path / name) for name in "ab"]
    results: list[bool] = []

    def send(study: Path) -> None:
        _trial(bench, study)
        mirror = bench.mirror(study)
        mirror.start()
        results.append(mirror.close("FINISHED", timeout_s=60))

    threads = [threading.Thread(target=send, args=(study,)) for study in studies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True, True]
    assert [_steps(bench, study) for study in studies] == [list(range(1, 11))] * 2
