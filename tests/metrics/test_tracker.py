from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kltune.errors import SpecError, StudyError
from kltune.metrics.tracker import (
    Tracker,
    check_experiment,
    has_moved,
    redact,
    reroot,
    resolve_tracker,
)


def test_by_default_the_tracker_is_sqlite_in_the_study_folder(tmp_path: Path) -> None:
    tracker = resolve_tracker(tmp_path / "a b é", None, {})
    assert tracker.is_own
    assert tracker.sqlite_path == tmp_path / "a b é" / "mlflow.db"
    assert tracker.artifact_root == f"{tmp_path.as_uri()}/a%20b%20%C3%A9/artifacts"


def test_the_spec_goes_before_the_environment(tmp_path: Path) -> None:
    environ = {"MLFLOW_TRACKING_URI": "http://localhost:5000"}
    assert resolve_tracker(tmp_path, None, environ).uri == "http://localhost:5000"
    assert resolve_tracker(tmp_path, "https://other", environ).uri == "https://other"
    assert not resolve_tracker(tmp_path, "https://other", environ).is_own


@pytest.mark.parametrize("uri", ["file:./mlruns", "file:///data/mlruns", "mlruns", "./mlruns"])
def test_a_folder_is_refused_with_both_remedies(uri: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"(?s)tracking\.mlflow: .*leave it out.*sqlite:////"):
        resolve_tracker(tmp_path, uri, {})
    with pytest.raises(SpecError, match="MLFLOW_TRACKING_URI"):
        resolve_tracker(tmp_path, None, {"MLFLOW_TRACKING_URI": uri})


def test_a_server_decides_where_artifacts_are_a_database_does_not(tmp_path: Path) -> None:
    assert resolve_tracker(tmp_path, "http://localhost:5000", {}).artifact_root is None
    postgres = resolve_tracker(tmp_path, "postgresql+psycopg2://u:p@h/db", {})
    assert postgres.artifact_root == (tmp_path / "artifacts").as_uri()


@pytest.mark.parametrize(
    "text",
    [
        "http://u:S3CRET@h/x failed",
        "http://S3CRET@h",
        "postgresql+psycopg2://u:S3CRET@h:5432/db",
        "https://h/x?a=1&access_token=S3CRET&b=2",
        "https://h/x?X-Amz-Signature=S3CRET",
        "at https://u:p@S3CRET@h/x",
    ],
)
def test_credentials_are_not_shown(text: str) -> None:
    assert "S3CRET" not in redact(text)
    assert "***" in redact(text)


def test_mlflows_own_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "S3CRET")
    assert redact("Bearer S3CRET was refused") == "Bearer *** was refused"


def test_an_address_without_credentials_is_shown_as_it_is() -> None:
    assert redact("http://localhost:5000/a?page=2") == "http://localhost:5000/a?page=2"


def test_the_fingerprint_survives_a_move_and_holds_no_secret(tmp_path: Path) -> None:
    own = [resolve_tracker(tmp_path / name, None, {}) for name in "ab"]
    assert own[0].fingerprint == own[1].fingerprint
    other = resolve_tracker(tmp_path, "http://u:S3CRET@h", {})
    assert "S3CRET" not in other.fingerprint
    assert other.fingerprint != own[0].fingerprint


def _database(path: Path, rows: list[tuple[int, str, str, str]]) -> None:
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE experiments (experiment_id, name, artifact_location, lifecycle_stage)"
    )
    database.execute("CREATE TABLE runs (artifact_uri)")
    database.executemany("INSERT INTO experiments VALUES (?, ?, ?, ?)", rows)
    database.executemany(
        "INSERT INTO runs VALUES (?)",
        [
            ("file:///old/artifacts/1/artifacts",),
            ("file:///old/artifacts2/1",),
            ("s3://bucket/artifacts/1",),
        ],
    )
    database.commit()
    database.close()


def test_a_deleted_experiment_is_refused_before_anything_starts(tmp_path: Path) -> None:
    tracker = resolve_tracker(tmp_path, None, {})
    check_experiment(tracker, "kitchen")  # no database yet
    _database(
        tmp_path / "mlflow.db",
        [(1, "kitchen", "file:///x", "deleted"), (2, "other", "file:///x", "active")],
    )
    start = time.monotonic()
    with pytest.raises(StudyError, match=r"deleted experiment 'kitchen'.*restore"):
        check_experiment(tracker, "kitchen")
    assert time.monotonic() - start < 5
    check_experiment(tracker, "other")
    check_experiment(tracker, "new")


class _Answers(BaseHTTPRequestHandler):
    seen: list[str | None]

    def do_GET(self) -> None:
        self.server.seen.append(self.headers.get("Authorization"))  # type: ignore[attr-defined]
        is_gone = "experiment_name=gone" in self.path
        self.send_response(200 if is_gone else 404)
        self.end_headers()
        body = {"experiment": {"lifecycle_stage": "deleted"}} if is_gone else {}
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_deleted_experiment_on_a_server_is_refused_without_showing_the_password(
    server: ThreadingHTTPServer,
) -> None:
    tracker = Tracker(f"http://u:S3CRET@127.0.0.1:{server.server_port}", None, is_own=False)
    with pytest.raises(StudyError, match="deleted experiment 'gone'") as caught:
        check_experiment(tracker, "gone")
    assert "S3CRET" not in str(caught.value)
    assert server.seen == ["Basic dTpTM0NSRVQ="]  # type: ignore[attr-defined]
    check_experiment(tracker, "new")


def test_a_tracker_that_is_not_there_is_no_reason_not_to_start() -> None:
    check_experiment(Tracker("http://127.0.0.1:9", None, is_own=False), "kitchen")


def test_a_moved_study_points_at_its_own_artifacts(tmp_path: Path) -> None:
    _database(
        tmp_path / "mlflow.db",
        [
            (0, "Default", "/home/x/mlruns/0", "active"),
            (1, "kitchen", "file:///old/artifacts", "active"),
            (2, "by hand", "s3://bucket/artifacts", "active"),
        ],
    )
    assert reroot(tmp_path)
    database = sqlite3.connect(tmp_path / "mlflow.db")
    root = (tmp_path / "artifacts").as_uri()
    runs = [row[0] for row in database.execute("SELECT artifact_uri FROM runs")]
    places = [row[0] for row in database.execute("SELECT artifact_location FROM experiments")]
    database.close()
    assert runs == [f"{root}/1/artifacts", "file:///old/artifacts2/1", "s3://bucket/artifacts/1"]
    assert places == [f"{root}/0", root, "s3://bucket/artifacts"]
    assert not reroot(tmp_path)


def test_a_copy_of_the_database_can_be_pointed_at_the_folder_in_its_place(tmp_path: Path) -> None:
    rows = [(1, "kitchen", "file:///old/artifacts", "active")]
    copy = tmp_path / "copy" / "mlflow.db"
    copy.parent.mkdir()
    _database(copy, rows)
    _database(tmp_path / "mlflow.db", rows)
    assert has_moved(tmp_path)
    assert reroot(tmp_path, copy)
    assert has_moved(tmp_path)  # the study's own was left alone
    with closing(sqlite3.connect(copy)) as database:
        places = [row[0] for row in database.execute("SELECT artifact_location FROM experiments")]
    assert places == [(tmp_path / "artifacts").as_uri()]
    assert reroot(tmp_path)
    assert not has_moved(tmp_path)


def test_a_study_without_mlflow_needs_no_rerooting(tmp_path: Path) -> None:
    assert not reroot(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_no_parser_takes_is_refused_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="percent-encoded") as caught:
        resolve_tracker(tmp_path, "http://u:S3/CRET@127.0.0.1:9", {})
    assert "CRET" not in str(caught.value)
