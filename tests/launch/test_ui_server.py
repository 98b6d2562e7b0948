from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from fake_study import trial, write_study

from kltune.errors import RunError
from kltune.launch.ui_server import serve_report
from kltune.report.build import LivePage


def draw(study_path: Path) -> LivePage:
    return LivePage(f"<head>{(study_path / 'record').read_text(encoding='utf-8')}", is_over=False)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "record").write_text("gold é 🥚", encoding="utf-8")
    return tmp_path


@pytest.fixture
def url(study: Path) -> Iterator[str]:
    with serve_report(study, render=draw) as address:
        yield address


def ask(
    url: str, path: str = "/", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, body
    finally:
        connection.close()


def test_the_report_is_served_as_html_that_is_not_kept(url: str) -> None:
    status, headers, body = ask(url)
    assert status == 200
    assert body.endswith("gold é 🥚")
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "connect-src 'self'" in headers["content-security-policy"]
    assert "http" not in headers["content-security-policy"]


def test_head_has_the_headers_and_no_body(url: str) -> None:
    # On one connection: a body that should not be there would be read as the next answer.
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    lengths = []
    for method in ("HEAD", "GET", "HEAD"):
        connection.request(method, "/")
        answer = connection.getresponse()
        body = answer.read()
        lengths.append(answer.getheader("Content-Length"))
        assert answer.status == 200
        assert len(body) == (int(lengths[-1] or 0) if method == "GET" else 0)
    connection.close()
    assert len(set(lengths)) == 1


def test_version_is_json_and_is_written_into_the_page(url: str) -> None:
    _, _, page = ask(url)
    status, headers, body = ask(url, "/version?x=1")
    facts = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert facts.keys() == {"version", "is_final"}
    assert facts["is_final"] is False
    assert f'content="{facts["version"]}"' in page


@pytest.mark.parametrize(
    "path",
    ["/report.html", "/trials/", "/../../etc/passwd", "/%2e%2e/spec.yaml", "/version/", "*"],
)
def test_nothing_else_is_served(url: str, path: str) -> None:
    assert ask(url, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_sent(url: str, method: str) -> None:
    status, _, body = ask(url, method=method)
    assert (status, body) == (404, "404 Not Found\n")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", ""])
def test_a_page_of_another_name_learns_nothing(url: str, host: str) -> None:
    for path in ("/", "/version"):
        status, _, body = ask(url, path, Host=host)
        assert status == 403
        assert "gold" not in body
        assert "version" not in body


def test_a_tunnel_may_change_the_port(url: str) -> None:
    assert ask(url, Host="localhost:9999")[0] == 200


@pytest.mark.parametrize(
    "line", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"<script>\r\n"]
)
def test_what_is_no_request_is_answered_without_repeating_it(url: str, line: bytes) -> None:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as wire:
        wire.sendall(line)
        wire.shutdown(socket.SHUT_WR)
        answer = wire.makefile("rb").read()
    assert b"gold" not in answer
    assert b"<script>" not in answer
    assert ask(url)[0] == 200


def test_it_listens_on_loopback_only(url: str) -> None:
    port = urlsplit(url).port
    listening = [
        found.laddr.ip
        for found in psutil.Process(os.getpid()).net_connections("tcp")
        if found.status == psutil.CONN_LISTEN and found.laddr.port == port
    ]
    assert listening == ["127.0.0.1"]


def test_requests_are_quick_while_a_report_is_drawn(study: Path) -> None:
    gate = threading.Event()

    def slow(study_path: Path) -> LivePage:
        gate.wait(60)
        return draw(study_path)

    with serve_report(study, render=slow) as url:
        begin = time.monotonic()
        assert json.loads(ask(url, "/version")[2]) == {"version": "", "is_final": False}
        assert ask(url, "/nothing")[0] == 404
        assert time.monotonic() - begin < 2
        gate.set()
        assert ask(url)[0] == 200


def test_a_report_that_cannot_be_drawn_is_told_as_text(study: Path) -> None:
    def broken(study_path: Path) -> LivePage:
        raise ValueError("<script>alert(1)</script>\x1b[2J")

    heard: list[str] = []
    with serve_report(study, render=broken, on_error=heard.append) as url:
        status, headers, body = ask(url)
    assert status == 503
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert "load this page again" in body
    assert "\x1b" not in body
    assert len(heard) == 1


def test_many_at_once_are_answered(url: str) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(ask(url)[0])) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [200] * 20


def test_a_port_that_is_taken_is_one_message(study: Path) -> None:
    with serve_report(study, render=draw) as url:
        port = urlsplit(url).port
        assert port is not None
        with (
            pytest.raises(RunError, match=f"port {port} of 127.0.0.1"),
            serve_report(study, port, render=draw),
        ):
            pass


def test_afterwards_nothing_listens(study: Path) -> None:
    with serve_report(study, render=draw) as url:
        pass
    with pytest.raises(OSError, match="refused"):
        ask(url)


@pytest.mark.slow
def test_a_real_study_is_served_and_follows_its_record(tmp_path: Path) -> None:
    write_study(tmp_path, [trial(0.1)])
    with serve_report(tmp_path) as url:
        _, _, page = ask(url)
        before = json.loads(ask(url, "/version")[2])["version"]
        assert "connect-src &#x27;self&#x27;" in page or "connect-src 'self'" in page
        write_study(tmp_path, [trial(0.1), trial(0.3)])
        until = time.monotonic() + 200
        while json.loads(ask(url, "/version")[2])["version"] == before:
            assert time.monotonic() < until
            time.sleep(0.2)
    assert not (tmp_path / "report.html").exists()
