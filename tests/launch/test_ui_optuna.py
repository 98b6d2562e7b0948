from __future__ import annotations

import json
import os
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from fake_bank import small_spec

from kltune.launch.ui_children import Child, Command
from kltune.launch.ui_loopback import choose_ports
from kltune.launch.ui_optuna import STORAGE, for_loopback_only, for_reading_only
from kltune.launch.ui_stores import optuna_store
from kltune.study.storage import open_study


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8000", "200 OK"), ("evil.example", "403 Forbidden"), (None, "403 Forbidden")],
)
def test_only_loopback_names_reach_the_dashboard(host: str | None, status: str) -> None:
    seen: list[str] = []

    def dashboard(_environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"the study"]

    def start_response(status: str, _headers: object) -> None:
        seen.append(status)

    environ = {} if host is None else {"HTTP_HOST": host}
    body = b"".join(for_loopback_only(dashboard)(environ, start_response))
    assert seen == [status]
    assert (body == b"the study") == (status == "200 OK")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "anything"])
def test_what_would_write_is_refused_before_it_reaches_the_database(method: str) -> None:
    seen: list[str] = []
    reached: list[str] = []

    def dashboard(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        reached.append(environ["REQUEST_METHOD"])
        start_response("200 OK", [])
        return []

    environ = {"REQUEST_METHOD": method}
    body = for_reading_only(dashboard)(environ, lambda status, _headers: seen.append(status))
    is_read = method in ("GET", "HEAD")
    assert seen == ["200 OK" if is_read else "403 Forbidden"]
    assert reached == ([method] if is_read else [])
    assert is_read or json.loads(b"".join(body))["reason"].startswith("read-only")


@pytest.mark.slow
def test_the_dashboard_shows_the_study_cannot_delete_it_and_holds_nothing_up(
    tmp_path: Path,
) -> None:
    pytest.importorskip("optuna_dashboard")
    study, scratch = tmp_path / "study", tmp_path / "scratch"
    study.mkdir()
    scratch.mkdir()
    search = open_study(study, small_spec())
    store = optuna_store(study, scratch)
    assert store is not None
    port = choose_ports({"--port": None})["--port"]
    arguments = ["-m", "kltune.launch.ui_optuna", str(port)]
    environment = {**os.environ, STORAGE: store.url}
    child = Child(Command("Optuna", arguments, port, "/api/meta", environment), scratch)
    try:
        assert child.wait_until_it_answers(lambda: False) is None
        url = f"http://127.0.0.1:{port}/api/studies"
        with urllib.request.urlopen(url, timeout=30) as answer:
            names = [found["study_name"] for found in json.load(answer)["study_summaries"]]
        assert names == [search.spec.name]
        request = urllib.request.Request(f"{url}/{store.entry}", method="DELETE")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        refused.value.close()
        assert refused.value.code == 403
        search.optuna_study.add_trial(optuna.create_trial(value=1.0))  # the search goes on
        search.close()
    finally:
        child.end()
    # And could put its file in order although the dashboard was open.
    with closing(sqlite3.connect(f"{(study / 'study.db').as_uri()}?mode=ro", uri=True)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert database.execute("SELECT COUNT(*) FROM trials").fetchone() == (1,)
    assert {path.name for path in study.iterdir()} == {"study.db", ".turn"}
