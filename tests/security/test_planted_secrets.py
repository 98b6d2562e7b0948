"""A sweep with a secret in every place that may hold one: afterwards none is in any file, nor in any output."""

from __future__ import annotations

import base64
import html
import json
import os
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import psutil
import pytest
from chat_fake import chat_server
from e2e.cli import command, environment
from security.no_network import attempts, guarded

pytestmark = pytest.mark.slow

SECRETS = {
    "MLFLOW_TRACKING_PASSWORD": "mlf p@ss/planted-1",
    "PGPASSWORD": "pg'pass\"planted-2",
    "HF_TOKEN": "hf_plantedplantedplanted3",
    "AWS_SECRET_ACCESS_KEY": "planted/4+AWS==",
    "AWS_SESSION_TOKEN": "planted<5>&session",
    "MY_GRADER": "planted-6-judge-key",
}
IN_ADDRESS = "planted/7@tracker"
ALL = (*SECRETS.values(), IN_ADDRESS)

REWARDS = f"""
import logging, os, sys, threading, warnings
NAMES = {sorted(SECRETS)!r}
told = False

def proxy(completions):
    global told
    words = " ".join(os.environ.get(name, "") for name in NAMES)
    if not told:
        told = True
        print("stdout:", words)
        print("stderr:", words, file=sys.stderr)
        logging.getLogger("mine").error("log: %s at %s", words, os.environ.get("MLFLOW_TRACKING_URI"))
        try:
            raise ValueError(words)
        except ValueError:
            logging.getLogger("mine").exception("with a traceback")
        warnings.warn(words)
        thread = threading.Thread(target=int, args=(words,))
        thread.start()
        thread.join()
    if sum(map(len, completions)) % 7 == 3:
        raise RuntimeError(f"could not reach https://me:{{os.environ['PGPASSWORD']}}@h/?token=abc, {{words}}")
    return [float(c.count("e")) for c in completions]
"""


def forms(secret: str) -> set[bytes]:
    texts = {
        secret, quote(secret), quote(secret, safe=""), quote_plus(secret), html.escape(secret),
        json.dumps(secret)[1:-1], repr(secret)[1:-1],
        base64.b64encode(f"tracker:{secret}".encode()).decode(), base64.b64encode(secret.encode()).decode(),
    }  # fmt: skip
    return {text.encode() for text in texts}


def hits(data: bytes, where: str) -> list[str]:
    return [f"{s} in {where}" for s in ALL for form in forms(s) if form in data]


@contextmanager
def tracker(status: int) -> Generator[tuple[str, list[str]]]:
    """An MLflow server that refuses everything, and quotes the login that it got."""
    logins: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            login = self.headers.get("Authorization", "")
            logins.append(login)
            body = json.dumps(
                {"error_code": "INTERNAL_ERROR", "message": f"no: {login} {SECRETS}"}
            ).encode()
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://tracker:{quote(IN_ADDRESS, safe='')}@127.0.0.1:{server.server_port}", logins
    finally:
        server.shutdown()
        server.server_close()


def spec_file(folder: Path, url: str, **more: Any) -> Path:
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    lines = [f"how long does rice take , version {i} ?\n" for i in range(24)]
    lines[::3] = [f"how long does rice take for me@example.org ? {i}\n" for i in range(8)]
    (folder / "prompts.txt").write_text("".join(lines), encoding="utf-8")
    judge = {"judge": "grader", "url": url, "key_env": "MY_GRADER", "retries": 0}
    spec = {
        "name": "planted",
        "task": {
            "prompts": "prompts.txt", "gold": judge, "proxy": "rewards.py:proxy",
            "errors": {"action": "skip", "share": 0.9},
        },
        "model": {"base": "builtin:kitchen"},
        "trainer": {"steps": 4, "prompts": 2, "group_size": 4, "max_new_tokens": 12},
        "search": {"beta": {"log": [0.01, 1]}},
        "evaluate": {"every": 2, "prompts": 4, "samples": 1},
        "budget": {"trials": 3, "slots": 2, "workers": 2},
        **more,
    }  # fmt: skip
    path = folder / "planted.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def watched(words: list[str], environ: dict[str, str]) -> tuple[int, bytes, bytes]:
    """Run; return the exit code, all output, and the arguments of the whole tree of processes."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ)
    titles: set[str] = set()

    def look() -> None:
        while process.poll() is None:
            for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]:
                try:
                    titles.update(one.cmdline())
                except psutil.Error:
                    continue
            threading.Event().wait(0.1)

    def look_on() -> None:
        try:
            look()
        except psutil.Error:
            return

    looking = threading.Thread(target=look_on, daemon=True)
    looking.start()
    said = process.communicate(timeout=400)[0]
    looking.join()
    return process.returncode, said, "\n".join(titles).encode()


def found_in(study: Path) -> list[str]:
    return [
        hit
        for path in study.rglob("*")
        if path.is_file()
        for hit in hits(path.read_bytes(), str(path))
    ]


@pytest.mark.parametrize("is_elsewhere", [True, False], ids=["server that fails", "own tracker"])
def test_a_planted_secret_is_found_nowhere(tmp_path: Path, is_elsewhere: bool) -> None:
    net = guarded(tmp_path)
    answers = iter(range(10**6))
    with tracker(500) as (address, logins), chat_server(lambda _: f"{next(answers) % 10}") as chat:
        environ = {**environment(), **SECRETS, **net}
        environ.pop("HF_HUB_OFFLINE")
        if is_elsewhere:
            environ["MLFLOW_TRACKING_URI"] = address
        spec = spec_file(tmp_path, chat.url)
        study = tmp_path / "S"
        words = command("sweep", spec, "--study", study, "--set", "task.isolate=true")
        code, said, titles = watched(words, environ)
        text = said.decode(errors="replace")
        assert code == 0, text
        assert f"Bearer {SECRETS['MY_GRADER']}" in chat.keys  # it was used
        assert bool(logins) == is_elsewhere
        for more in (
            ["report", study], ["status", study, "--json"], ["diagnose", study],
        ):  # fmt: skip
            _, also, _ = watched(command(*more), environ)
            said += also
    for stream in ("stdout:", "stderr:", "log:", "with a traceback"):
        assert stream in text, stream  # the secret was spoken, and masked
    assert "***" in text
    assert hits(said, "output") == []
    assert hits(titles, "arguments of processes") == []
    assert found_in(study) == []
    kept = [path.read_text(encoding="utf-8") for path in study.glob("trials/*/samples.jsonl")]
    assert "me@example.org" in "".join(kept)  # text of the task stays as it is
    assert attempts(tmp_path) == ""


@pytest.mark.parametrize(
    "words",
    [
        (
            "sweep",
            "{spec}",
            "--seed",
            "x",
            "--set",
            "tracking.mlflow=http://u:{secret}@127.0.0.1:1/x",
        ),
        ("sweep", "{spec}", "--set", "tracking.mlflow=http://u:{secret}@[bad/x"),
        ("sweep", "{spec}", "--storage", "postgresql://u:{secret}@127.0.0.1:1/x"),
        ("sweep", "{spec}", "--study", "postgresql://u:{secret}@127.0.0.1:1/x"),
        ("sweep", "postgresql://u:{secret}@127.0.0.1:1/x"),
        ("worker", "postgresql://u:{secret}@127.0.0.1:1/x#planted"),
        ("sweep", "{spec}", "mysql://u:{secret}@127.0.0.1:1/x"),
        ("diagnose", "http://u:{secret}@127.0.0.1:1/"),
        ("status", "http://u:{secret}@127.0.0.1:1/?token={secret}"),
        ("nonsense", "http://u:{secret}@127.0.0.1:1/"),
        ("sweep", "{spec}", "--set", "storage.url=postgresql://u:{secret}@127.0.0.1:1/x"),
        ("sweep", "{spec}", "--set", "model.base=https://u:{secret}@h/x"),
        ("sweep", "{spec}", "--seed", "http://u:{secret}@127.0.0.1:1/"),
    ],
    ids=lambda words: " ".join(words[:4])[:60],
)
def test_a_secret_typed_at_the_command_line_is_not_repeated(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    spec = spec_file(tmp_path, "http://127.0.0.1:1/v1")
    secret = "geheim-4711"
    given = [word.format(spec=spec, secret=secret) for word in words]
    environ = {**environment(), "KLTUNE_STORAGE": "", "MY_GRADER": "planted-6-judge-key"}
    environ.pop("KLTUNE_STORAGE")
    done = subprocess.run(
        command(*given), capture_output=True, text=True, timeout=120, check=False, env=environ,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (1, 2, 3, 5), done.stderr
    assert secret not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_storage_that_cannot_be_reached_is_one_sentence_without_its_password(
    tmp_path: Path,
) -> None:
    spec = spec_file(tmp_path, "http://127.0.0.1:1/v1")
    address = f"postgresql://me:{quote(IN_ADDRESS, safe='')}@127.0.0.1:1/studies?sslpassword=planted-8-inner"
    environ = {**environment(), **SECRETS, "KLTUNE_STORAGE": address}
    done = subprocess.run(
        command("sweep", spec, "--study", tmp_path / "S"),
        capture_output=True, timeout=120, check=False, env=environ,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 5, said
    assert hits(said, "output") == []
    assert b"planted-8-inner" not in said
    assert b"Traceback" not in said


def test_an_error_that_nobody_foresaw_shows_its_traceback_without_secrets() -> None:
    program = (
        "import sys, kltune.cli\n"
        "def fails():\n"
        "    try:\n"
        "        raise OSError('could not connect to postgresql://me:%s@db/x' % 'inner-4711')\n"
        "    except OSError as error:\n"
        "        raise RuntimeError('password=outer-4711') from error\n"
        "kltune.cli.app.registered_commands[0].callback = lambda **_: fails()\n"
        "kltune.cli.app.command('zz')(lambda: fails())\n"
        "sys.argv = ['kltune', 'zz']\n"
        "kltune.cli.main()\n"
    )
    done = subprocess.run(
        [*command()[:1], "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "PGPASSWORD": "third-4711"}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "RuntimeError: password=***" in done.stderr
    assert "The above exception was the direct cause" in done.stderr
    assert "-4711" not in done.stderr.replace("'inner-4711'", "").replace(
        "'password=outer-4711'", ""
    )
