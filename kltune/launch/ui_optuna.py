"""A port (an argument) and a database address (in the environment: arguments are for all to see) in, Optuna's dashboard on 127.0.0.1 out; a program of its own.

Run by ``kltune ui``. optuna-dashboard's own command answers whatever name it is called by, so a page of
somebody else's could read the study (DNS rebinding); this one answers to loopback names only, and only
to what reads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from kltune.launch.ui_loopback import LOOPBACK, is_loopback

STORAGE = "KLTUNE_UI_STORAGE"
"""Environment variable with the address, which may hold a password."""
Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


_REFUSAL = b'{"reason": "read-only: kltune ui shows the study and changes nothing in it"}\n'
"""In the form in which the dashboard shows why something failed."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    """Writes no line per request, and waits for no one for ever."""

    timeout = 30

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def for_loopback_only(application: Application) -> Application:
    """The application, which refuses requests under any other name of this machine."""

    def guarded(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if is_loopback(environ.get("HTTP_HOST")):
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"only requests to 127.0.0.1 or localhost are answered\n"]

    return guarded


def for_reading_only(application: Application) -> Application:
    """The application, which refuses every request that changes something before it reaches the database.

    All that the dashboard reads, it reads by GET.
    """

    def guarded(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("REQUEST_METHOD") in ("GET", "HEAD"):
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "application/json")])
        return [_REFUSAL]

    return guarded


def main(port: int, storage_url: str) -> None:
    """Serve until ended from outside."""
    # Not installed with kltune: only with its extra `ui`.
    from optuna_dashboard import wsgi

    from kltune.study.storage import storage_to_read

    application: Application = wsgi(storage_to_read(storage_url))
    with make_server(
        LOOPBACK,
        port,
        for_loopback_only(for_reading_only(application)),
        server_class=_Server,
        handler_class=_Quiet,
    ) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), os.environ.pop(STORAGE))
