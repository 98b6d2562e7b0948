"""``kltune diagnose``: a log in, its diagnosis (or where two runs part) as a table or JSON out. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console, RenderableType

from kltune.diagnose.compare import compare
from kltune.diagnose.findings import diagnose
from kltune.diagnose.read import read_run
from kltune.diagnose.result import Diagnosis
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.table import comparison_table, diagnosis_table, runs_table
from kltune.errors import ExitCode, SpecError
from kltune.grade import Grade, worst
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.metrics.jsonl import SCHEMA, encode
from kltune.spec.trial import KLUnit


@dataclass(frozen=True, slots=True)
class DiagnoseRequest:
    """The flags of ``kltune diagnose``."""

    log: str
    """A path or an MLflow URI."""
    other: str | None = None
    """A second one, to compare with."""
    run: str | None = None
    """Which run, where the log holds several."""
    kl_unit: Literal["token", "sequence"] | None = None
    """What the log's KL is a mean over, where the user says so."""
    mean_tokens: float | None = None
    """Mean completion length in tokens, where the log has none."""
    fail_on: Literal["warn", "fail"] | None = None
    """The grade from which the exit code is 4."""
    as_json: bool = False


def run_diagnose(request: DiagnoseRequest) -> ExitCode:
    """Read, judge, show; exit code 4 where ``fail_on`` is reached (or, of two runs, where they stay apart).

    Raises:
        SpecError: the log is absent, unreadable or of no known kind, or a flag doesn't fit it.
        StudyError: a study can't be read.
        EnvironmentMissingError: a package for this kind of log is not installed.
    """
    if request.mean_tokens is not None and not request.mean_tokens > 0:
        raise SpecError(f"--mean-tokens must be above 0 tokens (got {request.mean_tokens:g})")
    if request.other is not None:
        return _compare(request, request.other)
    found = [diagnose(run) for run in _read(request, request.log)]
    grade = worst(one.grade for one in found)
    whole: Mapping[str, Any] = found[0].as_json()
    if len(found) > 1:
        runs = [one.as_json() for one in found]
        whole = {"schema": SCHEMA, "path": request.log, "grade": grade.value, "runs": runs}
    _show(request, whole, _tables(found))
    is_bad = grade is Grade.FAIL or (request.fail_on == "warn" and grade is Grade.WARN)
    return ExitCode.GATE_FAILED if request.fail_on and is_bad else ExitCode.DONE


def _compare(request: DiagnoseRequest, other: str) -> ExitCode:
    """Exit code 4 with ``--fail-on`` where they stay apart and more than the seed differs."""
    a, b = _one(request, request.log), _one(request, other)
    found = compare(a, b)
    _show(request, found.as_json(), [comparison_table(found)])
    return ExitCode.GATE_FAILED if request.fail_on and found.is_apart else ExitCode.DONE


def _read(request: DiagnoseRequest, log: str) -> list[RunLog]:
    unit = None if request.kl_unit is None else KLUnit(request.kl_unit)
    return read_run(log, request.run, unit, request.mean_tokens)


def _one(request: DiagnoseRequest, log: str) -> RunLog:
    runs = _read(request, log)
    if len(runs) > 1:
        names = ", ".join(run.path for run in runs[:10]) + (", ..." if len(runs) > 10 else "")
        raise SpecError(f"{log}: holds {len(runs)} runs, and two single ones are compared: {names}")
    return runs[0]


def _tables(found: list[Diagnosis]) -> list[RenderableType]:
    if len(found) == 1:
        return [diagnosis_table(found[0])]
    say(f"{len(found)} runs; --run ID shows one of them in full")
    return [runs_table(found)]


def _show(request: DiagnoseRequest, whole: Mapping[str, Any], tables: list[RenderableType]) -> None:
    with reserved_stdout(is_reserved=request.as_json) as result:
        if request.as_json:
            result.write(encode(whole) + "\n")
            result.flush()
        else:
            Console(file=result).print(*tables, sep="\n")
