"""``kltune ui``: a study folder in; its live report, MLflow's page and Optuna's dashboard on loopback out, until ended.

Nothing here writes in the study.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Self

from kltune.errors import ExitCode, StudyError
from kltune.launch.saying import say
from kltune.launch.ui_children import Child
from kltune.launch.ui_loopback import choose_ports
from kltune.launch.ui_parts import MLFLOW, OPTUNA, Part, mlflow_part, optuna_part
from kltune.launch.ui_server import serve_report
from kltune.metrics.jsonl import read_json
from kltune.screen.ending import near
from kltune.spec.load import from_resolved

_LOOK_S = 0.2
_DUE_S = 3.0


@dataclass(frozen=True, slots=True)
class UiRequest:
    """The flags of ``kltune ui``; a port that is None is chosen."""

    study_path: Path
    port: int | None = None
    mlflow_port: int | None = None
    optuna_port: int | None = None
    opens_browser: bool = False
    as_json: bool = False


class Ending:
    """Whether the person, or the system, wants this to end; asked between looks."""

    def __init__(self) -> None:
        self._is_asked = False

    def __call__(self) -> bool:
        """Whether to end now."""
        return self._is_asked

    def hear(self, _number: int, _frame: FrameType | None) -> None:
        """Signal handler; hearing it again changes nothing, since the end takes seconds at most."""
        self._is_asked = True

    @contextmanager
    def listening(self) -> Generator[None]:
        """Hear Ctrl-C, SIGTERM and a closed terminal inside; the handlers before are put back."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self.hear) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _quiet(name: str) -> Generator[None]:
    """A running sweep may be in the middle of its last line: no news to the person at this terminal."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def run_ui(request: UiRequest) -> ExitCode:
    """Serve until Ctrl-C or SIGTERM, then end everything that was started; that is no error.

    Raises:
        StudyError: no study in the folder.
        SpecError: a port that can't be used.
    """
    study = request.study_path
    if not (study / "resolved.json").is_file():
        what = (
            "no such folder" if not study.exists() else "holds no study (resolved.json is absent)"
        )
        raise StudyError(f"{study}: {what}; give the folder of a study, as kltune sweep made it")
    spec = from_resolved(read_json(study / "resolved.json"))
    ports = choose_ports(
        {
            "--port": request.port,
            "--mlflow-port": request.mlflow_port,
            "--optuna-port": request.optuna_port,
        }
    )
    is_ending = Ending()
    with contextlib.ExitStack() as held:
        held.enter_context(_quiet("kltune.metrics.jsonl"))
        held.enter_context(is_ending.listening())
        scratch = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="kltune-ui-")))
        servers = held.enter_context(
            _Servers(
                {
                    MLFLOW: lambda: mlflow_part(study, scratch, spec, ports["--mlflow-port"]),
                    OPTUNA: lambda: optuna_part(study, scratch, ports["--optuna-port"]),
                },
                scratch,
                is_ending,
            )
        )
        report = held.enter_context(
            serve_report(study, ports["--port"], on_error=lambda why: say(f"report: {why}"))
        )
        say(f"{near(study)}: the report is at {report}; the rest takes about ten seconds more ...")
        parts = servers.wait()
        if not is_ending():
            note = "live: follows the study as it grows"
            _show([Part("report", address=report, note=note), *parts], as_json=request.as_json)
            if request.opens_browser:
                _open(report)
            say("Ctrl-C ends what was started here; the study itself goes on")
        servers.watch()
        say("ending ...")
    say("ended; nothing is left running")
    return ExitCode.DONE


class _Servers:
    """The servers beside the report. On leaving, all are ended."""

    def __init__(
        self, make: Mapping[str, Callable[[], Part]], scratch: Path, is_ending: Ending
    ) -> None:
        self._make = make
        self._scratch = scratch
        self._is_ending = is_ending
        self._running: dict[str, Child] = {}
        self._due: set[str] = set()
        """Those whose database a sweep has yet to make."""

    def __enter__(self) -> Self:
        """Start what can be started."""
        self._parts = [self._start(name) for name in self._make]
        return self

    def __exit__(self, *_: object) -> None:
        """Ask all to end before any is waited for."""
        for child in self._running.values():
            child.begin_to_end()
        for child in self._running.values():
            child.end()

    def wait(self) -> list[Part]:
        """Return when each answers, or can't, or all should end."""
        return [self._when_it_answers(part) for part in self._parts]

    def watch(self) -> None:
        """Return when it is time to end; what happens meanwhile is told once."""
        look_for_due_at = 0.0
        while not self._is_ending():
            for name, child in list(self._running.items()):
                if not child.is_running():
                    del self._running[name]
                    child.end()
                    say(f"{name}: has ended by itself{child.last_words()}; the rest goes on")
            if self._due and time.monotonic() >= look_for_due_at:
                self._look_for_due()
                look_for_due_at = time.monotonic() + _DUE_S
            time.sleep(_LOOK_S)

    def _start(self, name: str) -> Part:
        part = self._make[name]()
        (self._due.add if part.is_due else self._due.discard)(name)
        if part.command is not None:
            self._running[name] = Child(part.command, self._scratch)
        return part

    def _when_it_answers(self, part: Part) -> Part:
        child = self._running.get(part.name)
        why = None if child is None else child.wait_until_it_answers(self._is_ending)
        if child is None or why is None:
            return part
        del self._running[part.name]
        child.end()
        return Part(part.name, note=f"not shown: {why}")

    def _look_for_due(self) -> None:
        for name in sorted(self._due):
            part = self._start(name)
            if not part.is_due:
                part = self._when_it_answers(part)
                say(f"{name}: {part.address or ''} {part.note}")


def _show(parts: list[Part], *, as_json: bool) -> None:
    if as_json:
        facts = {part.name.lower(): part.address for part in parts}
        notes = {part.name.lower(): part.note for part in parts}
        sys.stdout.write(json.dumps({"schema": 1, **facts, "notes": notes}) + "\n")
    else:
        width = max(len(part.address or "") for part in parts)
        for part in parts:
            line = f"{part.name:<8}{part.address or '-':<{width}}  {part.note}"
            sys.stdout.write(f"{line.rstrip()}\n")
    sys.stdout.flush()


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        say(f"no browser was found here; open {address} in yours")
