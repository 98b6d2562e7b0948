from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fake_study import trial, write_study
from process_groups import eventually

from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch import ui
from kltune.launch.ui import UiRequest, run_ui
from kltune.launch.ui_children import Command
from kltune.launch.ui_loopback import choose_ports
from kltune.launch.ui_parts import Part
from kltune.metrics.tracker import Tracker
from kltune.spec.load import from_resolved
from kltune.study.storage import open_study

SERVE = """
import http.server, sys
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path / "study", [trial(0.1)])


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def start(study: Path, *flags: str) -> subprocess.Popen[str]:
    """Run the command as a user does, but for a tracker of this environment."""
    command = [sys.executable, "-m", "kltune", "ui", str(study), *flags]
    environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def small_server(name: str, code: str = SERVE) -> Part:
    port = choose_ports({"--port": None})["--port"]
    command = Command(name, ["-c", code, str(port)], port, "/", dict(os.environ))
    return Part(name, f"http://127.0.0.1:{port}/", "read-only", command)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(ui, "say", lines.append)
    return lines


def ended_when(is_so: Callable[[], bool]) -> threading.Thread:
    """Press Ctrl-C once something has come about, or after a minute."""

    def wait() -> None:
        eventually(is_so, 60)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def heard(said: list[str], words: str) -> bool:
    return any(words in line for line in said)


def _children() -> set[int]:
    """Processes below this one; another test of the same process may have left a server of its own on."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="holds no study"):
        run_ui(UiRequest(tmp_path))
    with pytest.raises(StudyError, match="no such folder"):
        run_ui(UiRequest(tmp_path / "nowhere"))


def test_a_port_in_use_is_refused_before_anything_starts(study: Path) -> None:
    with pytest.raises(SpecError, match="asked for twice"):
        run_ui(UiRequest(study, port=50123, mlflow_port=50123))


def test_the_addresses_are_a_small_table_and_ctrl_c_is_no_error(
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: list[str],
) -> None:
    earlier = _children()
    broken = small_server("Optuna", "raise SystemExit('no such table')")
    served = small_server("MLflow")
    monkeypatch.setattr(ui, "mlflow_part", lambda *_: served)
    monkeypatch.setattr(ui, "optuna_part", lambda *_: broken)
    before = signal.getsignal(signal.SIGINT)
    thread = ended_when(lambda: heard(said, "Ctrl-C ends"))
    assert run_ui(UiRequest(study)) is ExitCode.DONE
    thread.join()
    out, _ = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == ["report", "MLflow", "Optuna"]
    assert lines[0].split()[1].startswith("http://127.0.0.1:")
    assert lines[1].endswith("read-only")
    assert lines[2].endswith("not shown: it ended at once: no such table")
    assert max(len(line) for line in lines) <= 80
    assert said[-1] == "ended; nothing is left running"
    assert signal.getsignal(signal.SIGINT) is before
    assert _children() == earlier


def test_a_server_that_ends_by_itself_is_told_and_one_that_is_due_is_started(
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: list[str],
) -> None:
    earlier = _children()
    brief = small_server(
        "Optuna", f"import os, threading; threading.Timer(4, os._exit, [0]).start(){SERVE}"
    )
    late = [Part("MLflow", note="not yet", is_due=True), small_server("MLflow")]
    monkeypatch.setattr(ui, "mlflow_part", lambda *_: late.pop(0))
    monkeypatch.setattr(ui, "optuna_part", lambda *_: brief)
    thread = ended_when(lambda: heard(said, "by itself") and heard(said, "MLflow: http"))
    assert run_ui(UiRequest(study)) is ExitCode.DONE
    thread.join()
    assert sum(line.startswith("Optuna: has ended by itself") for line in said) == 1
    assert sum(line.startswith("MLflow: http://127.0.0.1:") for line in said) == 1
    assert late == []
    assert _children() == earlier


def test_the_browser_is_opened_only_when_asked(
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: list[str],
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: bool(opened.append(url)))
    monkeypatch.setattr(ui, "mlflow_part", lambda *_: Part("MLflow", note="none"))
    monkeypatch.setattr(ui, "optuna_part", lambda *_: Part("Optuna", note="none"))
    for flag in (False, True):
        said.clear()
        thread = ended_when(lambda: heard(said, "Ctrl-C ends"))
        run_ui(UiRequest(study, opens_browser=flag, as_json=True))
        thread.join()
        out, _ = capsys.readouterr()
        assert opened == ([json.loads(out)["report"]] if flag else [])
        assert heard(said, "no browser was found") == flag


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_study_without_databases_is_shown_until_a_signal(
    study: Path, number: signal.Signals
) -> None:
    (study / "study.db").unlink(missing_ok=True)
    process = start(study, "--json")
    assert process.stdout is not None
    facts = json.loads(process.stdout.readline())
    assert get(facts["report"])[0] == 200
    assert (facts["mlflow"], facts["optuna"]) == (None, None)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "nothing is left running" in err


@pytest.mark.slow
def test_the_real_servers_show_the_study_on_loopback_and_all_end(study: Path) -> None:
    pytest.importorskip("optuna_dashboard")
    from kltune.metrics.jsonl import read_json
    from kltune.metrics.mlflow import Store

    spec = from_resolved(read_json(study / "resolved.json"))
    open_study(study, spec).close()
    root = (study / "artifacts").as_uri()
    Store.open(Tracker(f"sqlite:///{study / 'mlflow.db'}", root, is_own=True)).experiment(spec.name)
    before = {path.name: path.stat().st_mtime_ns for path in study.iterdir()}

    process = start(study, "--json")
    assert process.stdout is not None
    facts = json.loads(process.stdout.readline())
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    listening = [
        connection.laddr.ip
        for member in family
        for connection in member.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    try:
        assert get(facts["report"])[0] == 200
        assert "MLflow" in get(facts["mlflow"])[1]
        assert "Optuna" in get(facts["optuna"])[1]
        assert set(listening) == {"127.0.0.1"}
        assert len(listening) == 3
        base = facts["mlflow"].partition("#")[0]
        found = get(f"{base}api/2.0/mlflow/experiments/get-by-name?experiment_name={spec.name}")
        assert json.loads(found[1])["experiment"]["artifact_location"] == root
        strange = urllib.request.Request(base, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(strange, timeout=60)
        refused.value.close()
        assert refused.value.code == 403
        body = json.dumps({"experiment_id": "0"}).encode()
        kind = {"Content-Type": "application/json"}
        delete = urllib.request.Request(f"{base}api/2.0/mlflow/experiments/delete", body, kind)
        with pytest.raises(urllib.error.HTTPError) as kept:
            urllib.request.urlopen(delete, timeout=60)
        kept.value.close()
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert eventually(lambda: not any(lives(member) for member in family))
    assert {path.name: path.stat().st_mtime_ns for path in study.iterdir()} == before


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_readers_warnings_are_back_afterwards(
    study: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setattr(ui, "mlflow_part", lambda *_: small_server("MLflow"))
    monkeypatch.setattr(ui, "optuna_part", lambda *_: small_server("Optuna"))
    logger = logging.getLogger("kltune.metrics.jsonl")
    before = logger.level
    thread = ended_when(lambda: logger.level == logging.ERROR and heard(said, "Ctrl-C ends"))
    assert run_ui(UiRequest(study)) is ExitCode.DONE
    thread.join()
    assert logger.level == before
