"""An MLflow run, experiment or database by its address in, its runs out as rows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kltune.diagnose.sources.raw import Merger, RawRun
from kltune.errors import SpecError
from kltune.metrics.mlflow_history import RunHistory, read_histories
from kltune.metrics.tracker import redact

_RUN: Final = re.compile(r"(?:mlflow:|runs:/)(?P<run>[^/:]+)/?")
_PAGE: Final = re.compile(
    r"(?P<uri>https?://[^#]+?)/?(?:#/?)?experiments/(?P<experiment>\d+)(?:/runs/(?P<run>\w+))?.*"
)
_DATABASE: Final = re.compile(r"(?:sqlite|postgresql|mysql|mssql)(?:\+\w+)?://.+")
_STUDY_ONLY: Final = "study/"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a tracker is, and what of it is wanted."""

    uri: str
    wanted: str | None
    """A run's id or name, or an experiment's; none: all."""


def address(text: str, run: str | None, environ: Mapping[str, str]) -> Address | None:
    """Read an MLflow address; none where ``text`` is none.

    Taken: ``mlflow:RUN_ID`` and ``runs:/RUN_ID`` (the tracker is MLFLOW_TRACKING_URI),
    ``sqlite:///mlflow.db``, another database or server, a page of MLflow's own web interface.
    Raises `SpecError` where the tracker is not told.
    """
    if (match := _RUN.fullmatch(text)) is not None:
        uri = environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            raise SpecError(
                f"{text}: set MLFLOW_TRACKING_URI to the tracker that holds the run, or give its database "
                f"or server and --run {match['run']}"
            )
        return Address(uri, run or match["run"])
    if (match := _PAGE.fullmatch(text)) is not None:
        return Address(match["uri"], run or match["run"] or match["experiment"])
    if _DATABASE.fullmatch(text) or text.startswith(("http://", "https://")):
        return Address(text, run)
    return None


def database_address(path: Path, run: str | None) -> Address:
    """Address of an MLflow database by its file."""
    return Address(f"sqlite:///{path.absolute()}", run)


def tracker_runs(where: Address) -> list[RawRun]:
    """Read the runs; a study's parent, which has no training of its own, is left out."""
    histories = read_histories(where.uri, where.wanted)
    trained = [h for h in histories if not all(_is_of_study(name) for _, name, _ in h.points)]
    return [_raw(history, where) for history in trained or histories]


def environ() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ


def _is_of_study(name: str) -> bool:
    return name.startswith((_STUDY_ONLY, "system/"))


def _raw(history: RunHistory, where: Address) -> RawRun:
    merger = Merger()
    for step, name, value in history.points:
        if not name.startswith("system/") and step >= 0:
            merger.add(step, {name: value})
    label = history.name or history.run_id
    # Points come metric by metric within a millisecond: their order says nothing of a restart.
    notes = (f"MLflow run {history.run_id}, experiment {history.experiment!r}",)
    facts: dict[str, object] = dict(history.params)
    return RawRun(f"{redact(where.uri)} ({label})", "MLflow run", merger.rows(), "", facts, notes)
