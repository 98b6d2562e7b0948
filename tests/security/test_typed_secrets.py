"""An address with a password in the place of any argument of any command: it is in no output, file or file's name."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from fake_study import trial, write_study

from kltune import cli

SECRET = "geheim-4711"
SPEC = """
name: typed
task: {builtin: kitchen}
model: {base: builtin:kitchen}
trainer: {steps: 2}
search: {beta: {log: [0.01, 1]}}
budget: {trials: 1}
"""
FORMS = (
    f"postgresql://u:{SECRET}@127.0.0.1:1/x",
    f"https:/u:{SECRET}@127.0.0.1:1/x",  # what is left of one that was taken for a path
    f"http://127.0.0.1:1/x?token={SECRET}",
)
SETS = ("model.base={}", "storage.url={}", "storage.record={}", "tracking.mlflow={}", "nonsense={}", "name={}",
        "task.gold={}", "task.prompts={}", "search.beta={}", "{}")  # fmt: skip
GIVEN = {"SPEC": "spec.yaml", "STUDY": "study", "STUDY...": "study", "CONFIG": "spec.yaml", "LOG": "study",
         "TARGET": "study", "NAME": "verl", "N": "1", "FOLDER": "."}  # fmt: skip
"""By what the help calls it: something that is there."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, one in command.commands.items():
        yield from commands(one, (*path, name))


SLOW = ("sweep", "diagnose")
"""They wait for databases and trackers that are not there."""
ROOT = typer.main.get_command(cli.app)
ALL = dict(commands(ROOT))


def required(command: Any, besides: str = "") -> list[str]:
    """The words without which the command says only that they are missing."""
    words: list[str] = []
    for param in command.params:
        if param.required and param.name != besides:
            flag = param.opts[-1:] if param.param_type_name == "option" else []
            words += [*flag, GIVEN[param.metavar]]
    return words


def table(path: tuple[str, ...]) -> Iterator[list[str]]:
    """Every argument and option of a command with an address in its place, and words that it does not know."""
    command = ALL[path]
    for param, form in itertools.product(command.params, FORMS):
        rest = required(command, param.name)
        if param.param_type_name == "argument":
            yield [*path, form, *rest]
            yield [*path, *rest, form]
            continue
        for flag in param.opts:
            forms = [text.format(form) for text in SETS] if flag == "--set" else [form]
            for text in forms:
                # What is allowed, a tracker say, would begin a run: it is told with a mistake beside it.
                besides = ["--set", "trainer.steps=-1"] if flag == "--set" else []
                yield [*path, *rest, *besides, flag, text]
            if flag.startswith("--") and flag != "--set" and form is FORMS[0]:
                yield [*path, *rest, f"{flag}={form}"]
    for form in FORMS:
        yield [*path, *required(command), form]
        yield [*path, *required(command), f"--nonsense={form}"]
        yield [form, *path]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a spec and a study; what `main` changes in this process is put back."""
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "study", [trial(0.0), trial(0.1)])
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    make, told = logging.getLogRecordFactory(), warnings.formatwarning
    hooks = threading.excepthook, sys.unraisablehook
    environ = dict(os.environ)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.delenv("KLTUNE_STORAGE", raising=False)
    yield tmp_path
    logging.setLogRecordFactory(make)
    warnings.formatwarning = told
    threading.excepthook, sys.unraisablehook = hooks
    os.environ.clear()
    os.environ.update(environ)


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    make = logging.getLogRecordFactory()
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in "12"]
    code: Any = 0
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["kltune", *words])
        patch.setattr(cli, "app", ROOT)  # made once, it takes a while
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        try:
            cli.main()
        except SystemExit as left:
            code = left.code
        finally:
            logging.setLogRecordFactory(
                make
            )  # else the next call would take this process for masked
    raw = [stream.buffer.getvalue() for stream in streams]  # pyright: ignore[reportAttributeAccessIssue]
    with contextlib.suppress(ValueError):
        for stream in streams:
            stream.close()
    return code or 0, b"".join(raw).decode()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path[0] in SLOW else [], id=" ".join(path))
        for path in ALL
    ],
)
def test_no_argument_that_holds_a_password_is_repeated(
    path: tuple[str, ...],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if path == ("diagnose",):  # MLflow tries for minutes
        monkeypatch.setattr("mlflow.store.db.utils.MAX_RETRY_COUNT", 1)
    leaks: list[str] = []
    for words in table(path):
        code, said = run(words, monkeypatch)
        told = capfd.readouterr()
        shown = " ".join(words)
        if SECRET in said + told.out + told.err:
            leaks.append(f"said ({code}): {shown}")
        if "Traceback" in said + told.err:
            leaks.append(f"traceback: {shown}: {said[-300:]}")
        if code == 0 and path[0] != "explain":  # which leaves a unit unread where there is no mean
            leaks.append(f"taken: {shown}: {said[-100:]}")
    leaks += [f"made: {found}" for found in place.rglob("*") if SECRET in str(found)]
    leaks += [
        f"in: {f}" for f in place.rglob("*") if f.is_file() and SECRET.encode() in f.read_bytes()
    ]
    assert leaks == []
