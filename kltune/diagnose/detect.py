"""A path in, which kind of log it is out; nothing is read but the beginning of a file."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Final

from kltune.diagnose.sources.console import has_console_lines
from kltune.diagnose.sources.events import event_files
from kltune.diagnose.sources.jsonl import trainer_state_of
from kltune.diagnose.sources.study import is_study, is_trial
from kltune.errors import StudyError
from kltune.metrics.rows import STEPS

_HEAD_BYTES: Final = 65_536
_SPEC: Final = "spec.yaml"
_FIRST_LINES: Final = 50
_TEXT_LOGS: Final = ("*.jsonl", "*.csv")
LOOKED_FOR: Final = (
    "a kltune study or trial folder, trainer_state.json or a checkpoint folder of TRL, TensorBoard event "
    "files, an MLflow database, JSON lines (verl's file log), verl's console log, a W&B export or another CSV"
)


class Source(StrEnum):
    """Kinds of logs that can be read."""

    STUDY = "study"
    TRIAL = "trial"
    EVENTS = "events"
    DATABASE = "database"
    JSON = "json"
    LINES = "lines"
    CONSOLE = "console"
    TABLE = "table"


def detect(path: Path) -> tuple[Source, Path]:
    """Tell the kind of a log, and the file or folder that holds it.

    Raises `StudyError` for a path that is absent, empty, unreadable or none of the kinds; it
    names what was looked for.
    """
    if not path.exists():
        raise StudyError(f"{path}: no such file or folder (looked for {LOOKED_FOR})")
    try:
        if path.name == STEPS and is_trial(path.parent):
            return Source.TRIAL, path.parent
        return _folder(path) if path.is_dir() else (_file(path), path)
    except PermissionError as error:
        raise StudyError(f"{path}: not readable ({error.strerror})") from error


def _folder(path: Path) -> tuple[Source, Path]:
    if is_study(path):
        return Source.STUDY, path
    if is_trial(path):
        return Source.TRIAL, path
    if (path / _SPEC).is_file():
        raise StudyError(
            f"{path}: a kltune study without its trials (there is no folder trials in it)"
        )
    if (state := trainer_state_of(path)) is not None:
        return Source.JSON, state
    if event_files(path):
        return Source.EVENTS, path
    if (database := path / "mlflow.db").is_file():
        return Source.DATABASE, database
    logs = sorted(file for pattern in _TEXT_LOGS for file in path.glob(pattern))
    if len(logs) == 1:
        return _file(logs[0]), logs[0]
    if logs:
        names = ", ".join(file.name for file in logs[:8])
        raise StudyError(f"{path}: several logs are in this folder; give one of them: {names}")
    raise StudyError(f"{path}: no log in this folder (looked for {LOOKED_FOR})")


def _file(path: Path) -> Source:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head.strip():
        raise StudyError(f"{path}: the file is empty")
    if head.startswith(b"SQLite format 3\0"):
        return Source.DATABASE
    if event_files(path):
        return Source.EVENTS
    if b"\0" in head:
        raise StudyError(f"{path}: a binary file of no known kind (looked for {LOOKED_FOR})")
    return _text(path, head.decode("utf-8-sig", errors="replace"))


def _text(path: Path, head: str) -> Source:
    lines = [line for line in head.splitlines() if line.strip()]
    start = head.lstrip()[:1]
    if has_console_lines(head) and not _is_json_object(lines[0]):
        return Source.CONSOLE
    if _is_json_object(lines[0]):
        return Source.JSON if len(lines) == 1 and path.suffix == ".json" else Source.LINES
    if start in ("{", "["):
        # One value over many lines; a single broken line is read, and refused, as lines.
        return Source.LINES if path.suffix == ".jsonl" else Source.JSON
    if any(_is_json_object(line) for line in lines[:_FIRST_LINES]):
        return Source.LINES
    if "," in lines[0] or "\t" in lines[0] or ";" in lines[0] or path.suffix in (".csv", ".tsv"):
        return Source.TABLE if _is_table(path, lines) else Source.CONSOLE
    return Source.CONSOLE


def _is_table(path: Path, lines: list[str]) -> bool:
    if path.suffix in (".csv", ".tsv"):
        return True
    counts = {tuple(line.count(sign) for sign in ",;\t") for line in lines[:5]}
    return len(counts) == 1


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
