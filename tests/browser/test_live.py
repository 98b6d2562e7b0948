from __future__ import annotations

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from page_case import report

from kltune.report.page import render_page

if TYPE_CHECKING:
    from playwright.sync_api import Page


class Server(ThreadingHTTPServer):
    """A study that grows: what it serves is what it was told last."""

    count = 12
    is_final = False
    asked = 0

    @property
    def version(self) -> bytes:
        return json.dumps({"version": str(self.count), "is_final": self.is_final}).encode()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        kind, body = "text/html; charset=utf-8", b""
        if self.path == "/version":
            self.server.asked += 1
            kind, body = "application/json", self.server.version
        elif self.path == "/":
            body = render_page(report(self.server.count, is_live=True)).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Generator[Server]:
    running = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def page(browser: Any, server: Server) -> Generator[Page]:
    """The page, on a clock that the test winds."""
    room = browser.new_context(viewport={"width": 1280, "height": 700})
    room.set_default_timeout(10_000)
    opened = room.new_page()
    opened.clock.install()
    opened.goto(f"http://127.0.0.1:{server.server_port}/")
    yield opened
    room.close()


def wind(page: Page, seconds: int = 6) -> None:
    page.clock.run_for(seconds * 1000)


def test_a_newer_report_is_shown_where_the_reader_was(page: Page, server: Server) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.wait_for_selector(".live:has-text('Live, updated')")
    page.click("#theme")
    page.fill(".filter input", "k2")
    page.evaluate("scrollTo({top: 300, behavior: 'instant'})")
    page.evaluate("history.replaceState(null, '', '#trial-4')")
    server.count = 15
    wind(page)
    page.wait_for_selector(".sub:has-text('15 of 15 trials')")
    page.wait_for_selector("dialog[open] h2:has-text('Trial 4')")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("Math.abs(scrollY - 300) < 40")
    assert page.input_value(".filter input") == "k2"
    assert said == []


def test_an_unchanged_report_stays_as_it_is(page: Page, server: Server) -> None:
    page.wait_for_selector(".live:has-text('Live, updated')")
    page.evaluate("window.isSame = true")
    asked = server.asked
    for _ in range(3):
        wind(page)
        page.wait_for_timeout(50)
    assert server.asked > asked
    assert page.evaluate("window.isSame")


def test_the_page_stops_asking_when_the_sweep_has_ended(page: Page, server: Server) -> None:
    server.is_final = True
    page.wait_for_timeout(100)
    wind(page)
    page.wait_for_selector(".live[data-state='final']")
    asked = server.asked
    wind(page, 60)
    page.wait_for_timeout(100)
    assert server.asked == asked


def test_a_server_that_has_gone_is_said_and_raises_nothing(page: Page, server: Server) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.wait_for_selector(".live:has-text('Live, updated')")
    page.route("**/version", lambda route: route.abort())
    wind(page)
    page.wait_for_selector(".live[data-state='gone']:has-text('The server has gone')")
    page.unroute("**/version")
    wind(page, 30)
    page.wait_for_selector(".live[data-state='live']")
    assert errors == []
