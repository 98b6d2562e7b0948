"""A path or an address of any framework's log in, its runs in kltune's quantities out."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kltune.diagnose.assemble import to_run_log
from kltune.diagnose.detect import Source, detect
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.sources.console import read_console
from kltune.diagnose.sources.events import read_events
from kltune.diagnose.sources.jsonl import read_json, read_lines
from kltune.diagnose.sources.raw import RawRun
from kltune.diagnose.sources.study import read_study, read_trial_folder
from kltune.diagnose.sources.table import read_table
from kltune.diagnose.sources.tracked import address, database_address, environ, tracker_runs
from kltune.errors import SpecError, StudyError
from kltune.spec.trial import KLUnit

_NAMES_SHOWN: Final = 12


def read_run(
    path_or_uri: str,
    run: str | None = None,
    kl_unit: KLUnit | None = None,
    mean_tokens: float | None = None,
) -> list[RunLog]:
    """Read every run that a path or an MLflow address holds: one, or one a trial of a study.

    ``run`` picks one: a trial's number, a run's id or name. ``kl_unit`` says what the run's KL is
    in, whatever its name or size would say. ``mean_tokens``: mean completion length in tokens,
    for a log that has none.

    Raises:
        SpecError: ``mean_tokens`` is not above 0, or the address lacks its tracker.
        StudyError: There is no log, or nothing in it can be read; says what was looked for.
        EnvironmentMissingError: A package or a server is missing.
    """
    if mean_tokens is not None and not mean_tokens > 0:
        raise SpecError(f"mean completion length: must be above 0 tokens (got {mean_tokens})")
    raws = _raw_runs(path_or_uri, run)
    logs = [to_run_log(raw, kl_unit, mean_tokens) for raw in raws]
    # A KL whose unit can't be told is known, and the notes say what to do.
    if all(len(log.ignored) == len(raw.names) for log, raw in zip(logs, raws, strict=True)):
        names = sorted({name for log in logs for name in log.ignored})
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
        raise StudyError(
            f"{path_or_uri}: none of its names is known as a KL, a reward, a length, an entropy or a loss of any "
            f"trainer; its names are: {shown or 'none'}"
        )
    return logs


def _raw_runs(path_or_uri: str, run: str | None) -> list[RawRun]:
    where = address(path_or_uri, run, environ())
    if where is not None:
        return tracker_runs(where)
    source, path = detect(Path(path_or_uri))
    if source is Source.STUDY:
        return read_study(path, run)
    if source is Source.DATABASE:
        return tracker_runs(database_address(path, run))
    found = _of_file(source, path)
    return found if run is None else [_named(found, run, path_or_uri)]


def _of_file(source: Source, path: Path) -> list[RawRun]:
    if source is Source.EVENTS:
        return read_events(path)
    if source is Source.TABLE:
        return read_table(path)
    one = {
        Source.TRIAL: read_trial_folder,
        Source.JSON: read_json,
        Source.LINES: read_lines,
        Source.CONSOLE: read_console,
    }
    return [one[source](path)]


def _named(runs: list[RawRun], wanted: str, path: str) -> RawRun:
    """The run whose name is, or ends with, the one that is wanted."""
    for raw in runs:
        label = (
            raw.path.removesuffix(")").rpartition(" (")[2] if raw.path.endswith(")") else raw.path
        )
        if wanted in (label, Path(label).name):
            return raw
    there = ", ".join(raw.path for raw in runs)
    raise StudyError(f"{path}: no run {wanted!r}; there are: {there}")
