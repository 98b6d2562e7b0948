"""``kltune check``: a spec in, a table of what is sound and what is not out; nothing is trained, nothing is written.

Flags and files are checked before anything heavy loads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console

from kltune.check.result import CheckResult, Line
from kltune.check.table import check_table
from kltune.errors import ExitCode
from kltune.grade import Grade
from kltune.launch import signals
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.launch.threads import keep_memory, share_cores
from kltune.metrics.jsonl import encode
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec, load_spec


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The flags of ``kltune check``."""

    spec_path: Path
    samples: int | None = None
    """Completions that are drawn; none: those of a step, 32 or more."""
    overrides: tuple[str, ...] = ()
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found, and what could not be looked at."""

    lines: tuple[Line, ...]
    skipped: tuple[str, ...] = ()


Look = Callable[[LoadedSpec, int | None], Looked]


def run_check(request: CheckRequest, look: Look | None = None) -> ExitCode:
    """Check the spec; exit code 4 where a line fails. ``look`` stands in for the loading of models.

    Raises:
        SpecError: a spec or a path in it that can't be used; nothing was started.
        TrialFault: memory ran out.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    start = time.perf_counter()
    spec = load_spec(request.spec_path, request.overrides)
    check_paths(spec)
    # As `kltune audit`: beside busy processes a thread that waits by spinning costs more than it saves.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    share_cores()
    keep_memory()
    stop = signals.StopRequest(None, _stop_at_once)
    try:
        with stop.listening(), reserved_stdout(is_reserved=request.as_json) as result:
            if look is None:
                # torch takes seconds to import: not before the spec is sound.
                from kltune.launch.check_probes import look_at

                look = look_at
            looked = look(spec, request.samples)
            if stop() is not None:  # a scorer caught what the signal raised
                raise KeyboardInterrupt
            seconds = time.perf_counter() - start
            found = CheckResult(spec.spec.name, looked.lines, seconds, looked.skipped)
            _show(found, result, as_json=request.as_json)
    except KeyboardInterrupt:
        say("stopped; nothing was written")
        return signals.EXIT_CODES.get(stop() or "", ExitCode.INTERRUPTED)
    return ExitCode.GATE_FAILED if found.grade is Grade.FAIL else ExitCode.DONE


def _stop_at_once(_reason: str) -> None:
    """Nothing is lost by it."""
    raise KeyboardInterrupt


def _show(found: CheckResult, result: TextIO, *, as_json: bool) -> None:
    if as_json:
        result.write(encode(found.as_json()) + "\n")
        result.flush()
    else:
        Console(file=result).print(check_table(found))
