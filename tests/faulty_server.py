"""Servers that do what broken ones do: a port with one fault, and a gate before a sound server."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

FAULTS = (
    "silent",
    "drip",
    "drip_head",
    "500",
    "503",
    "400",
    "404",
    "429",
    "redirect",
    "html",
    "garbage",
    "cut",
    "close",
)
"""silent: accepts and never answers. drip: a body byte by byte, drip_head: a head without an end. 404, 400 and
html: pages of a gateway. garbage: no HTTP (nor TLS). cut: ends within the body. close: ends without a word."""


class FaultyServer:
    """A port on which every connection meets the same fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.num_connections = 0
        self._over = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._over.set()
        self._socket.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.num_connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            spoil(self.fault, connection.sendall, self._over)


def spoil(fault: str, send: Callable[[bytes], object], over: threading.Event) -> None:
    """Answer one request as ``fault`` says; returns when the connection is to be closed."""
    if fault == "silent":
        over.wait(600)
    elif fault in _DRIPS:
        head, drop = _DRIPS[fault]
        send(head)
        while not over.wait(0.5):
            send(drop)
    elif fault in _ANSWERS:
        send(_ANSWERS[fault])


_PAGE = b"<html>a gateway says no</html>"
_HEAD = b"Content-Type: text/html\r\nConnection: close\r\n"
_REST = _HEAD + f"Content-Length: {len(_PAGE)}\r\n\r\n".encode() + _PAGE
_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
_DRIPS = {"drip": (_JSON, b" "), "drip_head": (b"HTTP/1.1 200 OK\r\nX: ", b"x")}
_ANSWERS = {
    **{code: f"HTTP/1.1 {code} No\r\n".encode() + _REST for code in ("400", "404", "500", "503")},
    "429": b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3600\r\n" + _REST,
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: /again\r\n" + _REST,
    "html": b"HTTP/1.1 200 OK\r\n" + _REST,
    "garbage": bytes(range(128, 256)) * 8,
    "cut": _JSON + b"{",
}


class Gate(ThreadingHTTPServer):
    """Passes requests on to a sound server, or does what its ``fault`` says instead.

    Beside those of FAULTS: ``refuse`` (no connection is answered), ``lost`` (the server gets the request, the
    reply goes nowhere) and ``late`` (the server gets it after the client has given up).
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target
        self.fault: str | None = None
        self.only = ""
        """Part of the path of the requests that meet the fault; the others pass."""
        self.num_spoilt = 0
        self.over = threading.Event()
        self.paths: list[str] = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Passing(BaseHTTPRequestHandler):
    server: Gate
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._pass()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.paths.append(self.path)
        fault = self.server.fault if self.server.only in self.path else None
        if fault is not None:
            self.server.num_spoilt += 1
        if fault == "late":
            time.sleep(7)
        elif fault is not None and fault != "lost":
            if fault != "refuse":
                with contextlib.suppress(OSError):
                    spoil(fault, self.wfile.write, self.server.over)
            return
        request = Request(
            self.server.target + self.path, body or None, dict(self.headers), method=self.command
        )
        try:
            with urlopen(request, timeout=60) as answer:
                status, kind, text = answer.status, answer.headers["Content-Type"], answer.read()
        except HTTPError as error:
            status, kind, text = error.code, error.headers["Content-Type"], error.read()
        except OSError:
            return
        if fault == "lost":
            return
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind or "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass
