"""A study folder in, an address on this machine's loopback that serves its live report out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kltune.errors import RunError
from kltune.launch.ui_live import LiveReport, Render
from kltune.launch.ui_loopback import LOOPBACK, is_loopback
from kltune.report.build import draw_live
from kltune.report.text import visible

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'unsafe-inline' blob:",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "font-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The page has its own in its head as well; of the two, the stricter counts for each kind."""
_SILENT_S = 30
_TEXT, _HTML, _JSON = (
    "text/plain; charset=utf-8",
    "text/html; charset=utf-8",
    "application/json",
)


@contextmanager
def serve_report(
    study_path: Path,
    port: int = 0,
    *,
    render: Render = draw_live,
    on_error: Callable[[str], None] | None = None,
) -> Generator[str]:
    """Serve the live report inside; yields its address.

    ``port``: 0 takes a free one. ``on_error`` hears why the report could not be drawn, once for each
    reason; the last good one stays.

    Raises:
        RunError: the port can't be had.
    """
    live = LiveReport(study_path, render, on_error)
    try:
        with _serving(live, port) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            try:
                yield f"http://{LOOPBACK}:{server.server_port}/"
            finally:
                server.shutdown()
                thread.join()
    finally:
        live.close()


def _serving(live: LiveReport, port: int) -> _Server:
    try:
        return _Server(live, port)
    except OSError as error:
        raise RunError(f"port {port} of {LOOPBACK} can't be used ({error.strerror})") from error


class _Server(ThreadingHTTPServer):
    """On loopback only; threads of requests don't outlive the process."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, live: LiveReport, port: int) -> None:
        self.live = live
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is nothing to tell."""


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of / and /version."""

    protocol_version = "HTTP/1.1"
    timeout = _SILENT_S

    @property
    def _live(self) -> LiveReport:
        assert isinstance(self.server, _Server)
        return self.server.live

    def do_GET(self) -> None:
        """Answer with a body."""
        if not is_loopback(self.headers.get("Host")):
            why = "only requests to 127.0.0.1 or localhost are answered"
            return self._say(HTTPStatus.FORBIDDEN, why)
        path = self.path.partition("?")[0]
        if path == "/version":
            version, is_final = self._live.version()
            body = json.dumps({"version": version, "is_final": is_final}).encode()
            return self._send(HTTPStatus.OK, body, _JSON)
        if path == "/":
            return self._report()
        return self._say(HTTPStatus.NOT_FOUND, "there is nothing but / and /version")

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self.do_GET()

    def _report(self) -> None:
        latest = self._live.page()
        if latest is not None:
            return self._send(HTTPStatus.OK, latest.html, _HTML)
        why = self._live.error() or "it takes longer than usual"
        words = f"the report is not drawn yet ({visible(why)}); load this page again"
        return self._say(HTTPStatus.SERVICE_UNAVAILABLE, words)

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._send(status, f"{text}\n".encode(), _TEXT)

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Anything that is not understood, another method too: one plain line, which repeats nothing."""
        del message, explain
        self.close_connection = True
        status = HTTPStatus.NOT_FOUND if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._say(status, f"{status.value} {status.phrase}")

    def version_string(self) -> str:
        """Name the server, not its version nor Python's."""
        return "kltune"

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
