from __future__ import annotations

import importlib.util
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fake_bank import small_spec

from kltune.launch.ui_parts import Part, mlflow_part, optuna_part
from kltune.metrics.jsonl import write_json
from kltune.spec.study import StudySpec

PORT = 50123


@pytest.fixture(autouse=True)
def without_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / "study"
    folder.mkdir()
    return folder


def mlflow(study: Path, spec: StudySpec | None = None) -> Part:
    scratch = study.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return mlflow_part(study, scratch, spec or small_spec(), PORT)


def optuna(study: Path) -> Part:
    scratch = study.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return optuna_part(study, scratch, PORT)


def make_mlflow(study: Path, name: str) -> None:
    root = (study / "artifacts").as_uri()
    with closing(sqlite3.connect(study / "mlflow.db")) as database, database:
        database.execute(
            "CREATE TABLE experiments (experiment_id INTEGER, name TEXT, artifact_location TEXT)"
        )
        database.execute("INSERT INTO experiments VALUES (3, ?, ?)", (name, root))


def test_mlflow_is_served_from_the_study_on_loopback_under_loopback_names(study: Path) -> None:
    make_mlflow(study, small_spec().name)
    part = mlflow(study)
    assert part.address == f"http://127.0.0.1:{PORT}/#/experiments/3/runs"
    assert part.command is not None
    words = list(part.command.arguments)
    assert words[words.index("--host") + 1] == "127.0.0.1"
    hosts = words[words.index("--allowed-hosts") + 1].split(",")
    assert {host.partition(":")[0] for host in hosts} == {"localhost", "127.0.0.1", "["}
    assert "*" not in hosts
    assert "mode=ro" in words[words.index("--backend-store-uri") + 1]
    assert "--disable-security-middleware" not in words


def test_what_would_steer_mlflow_elsewhere_is_not_handed_on(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mlflow(study, small_spec().name)
    monkeypatch.setenv("MLFLOW_HOST", "0.0.0.0")
    monkeypatch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "S3CRET")
    monkeypatch.setenv("KEPT", "1")
    part = mlflow(study)
    assert part.command is not None
    environment = part.command.environment
    assert environment["KEPT"] == "1"
    assert "S3CRET" not in environment.values()
    assert {name for name in environment if "MLFLOW" in name} == {
        "MLFLOW_DISABLE_TELEMETRY",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION",
        "MLFLOW_ENABLE_AI_GATEWAY",
        "MLFLOW_ENABLE_ASSISTANT_SANDBOX",
    }
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_another_tracker_is_named_without_its_password_and_not_started(study: Path) -> None:
    spec = small_spec(tracking={"mlflow": "https://user:S3CRET@tracker.example/x"})
    part = mlflow(study, spec)
    assert part.command is None
    assert part.address == "https://***@tracker.example/x"
    assert "not started here" in part.note


def test_a_tracker_of_the_environment_counts_only_where_the_study_has_no_own(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker.example")
    assert mlflow(study).address == "http://tracker.example"
    write_json(study / "mlflow.json", {"schema": 1, "tracker": "own"})
    make_mlflow(study, small_spec().name)
    part = mlflow(study)
    assert part.address is not None
    assert part.address.startswith("http://127.0.0.1")


def test_a_sweep_that_begins_has_its_databases_later(study: Path) -> None:
    assert mlflow(study).is_due
    assert optuna(study).is_due
    make_mlflow(study, "another")  # its tables are there, its experiment is not
    part = mlflow(study)
    assert part.is_due
    assert part.command is None
    assert "yet" in part.note


def test_a_study_that_is_not_tracked_has_no_runs_to_wait_for(study: Path) -> None:
    part = mlflow(study, small_spec(tracking={"enabled": False}))
    assert not part.is_due
    assert part.command is None


def test_a_damaged_database_is_told_and_the_rest_goes_on(study: Path) -> None:
    for name in ("mlflow.db", "study.db"):
        (study / name).write_text("no database" * 100)
    for part in (mlflow(study), optuna(study)):
        assert part.command is None
        assert part.note.startswith("not shown: ")
        assert ".db" in part.note


def test_without_the_extra_it_says_what_to_install(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    part = optuna(study)
    assert "pip install 'kltune[ui]'" in part.note
    assert not part.is_due
    shutil.rmtree(study)
