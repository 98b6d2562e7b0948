"""A chat server on this machine that answers as it is told: what the judge's tests ask over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = str | tuple[int, str] | tuple[int, str, dict[str, str]]
"""The reply's text; or a status, a body and headers."""


@dataclass
class Chat:
    """A running server and what it was asked."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


@contextmanager
def chat_server(reply: Callable[[str], Answer]) -> Generator[Chat]:
    """``reply`` gets the last message's text."""
    chat = Chat()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                chat.asked.append(body)
                chat.keys.append(self.headers.get("Authorization"))
                answer = reply(body["messages"][-1]["content"])
            status, text, headers = 200, "", {}
            if isinstance(answer, str):
                message = {"role": "assistant", "content": answer}
                usage = {"prompt_tokens": 100, "completion_tokens": 10}
                text = json.dumps({"choices": [{"message": message}], "usage": usage})
            elif len(answer) == 2:
                status, text = answer
            else:
                status, text, headers = answer
            raw = text.encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def do_GET(self) -> None:
            """A redirect that was followed ends here."""
            chat.keys.append(self.headers.get("Authorization"))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    chat.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield chat
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
