from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from process_groups import members

from kltune.launch.ui_children import Child, Command
from kltune.launch.ui_loopback import choose_ports

SERVE = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 500)
        self.end_headers()
        self.wfile.write(os.getcwd().encode())
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def never() -> bool:
    return False


@pytest.fixture
def port() -> int:
    return choose_ports({"--port": None})["--port"]


@pytest.fixture
def started(port: int, tmp_path: Path) -> Iterator[Child]:
    child = Child(command(SERVE, port), tmp_path)
    yield child
    child.end()


def command(code: str, port: int, answers_at: str = "/ready") -> Command:
    return Command("Server", ["-c", code, str(port)], port, answers_at, dict(os.environ))


def test_a_server_is_waited_for_and_ends_with_its_group(started: Child) -> None:
    assert started.wait_until_it_answers(never) is None
    assert started.is_running()
    assert len(members(started.group)) == 2
    started.end()
    assert not started.is_running()
    assert members(started.group) == []


def test_its_group_is_not_ours(started: Child) -> None:
    assert started.group != os.getpgid(0)


def test_it_works_in_a_folder_of_its_own(started: Child, tmp_path: Path) -> None:
    assert started.wait_until_it_answers(never) is None
    found = {process.cwd() for process in psutil.Process(started.group).children()}
    assert found == {str(tmp_path / "Server.folder")}


def test_one_that_ends_at_once_is_told_with_its_last_words(port: int, tmp_path: Path) -> None:
    child = Child(command("raise SystemExit('no such thing')", port), tmp_path)
    why = child.wait_until_it_answers(never)
    child.end()
    assert why == "it ended at once: no such thing"


def test_one_that_answers_with_an_error_is_not_ready(port: int, tmp_path: Path) -> None:
    child = Child(command(SERVE, port, "/other"), tmp_path)
    why = child.wait_until_it_answers(never, patience_s=1)
    child.end()
    assert why is not None
    assert why.startswith("it did not answer within 1 s")


def test_waiting_ends_when_all_should_end(started: Child) -> None:
    assert started.wait_until_it_answers(lambda: True) is None


def test_a_proxy_of_the_environment_is_not_asked(
    started: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert started.wait_until_it_answers(never, patience_s=30) is None
