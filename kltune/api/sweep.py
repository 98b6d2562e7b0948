"""A spec in, a finished (or resumable) study out: ``kltune sweep`` as a function."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from kltune.api.study import Study, as_path, open_study
from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.request import SweepRequest
from kltune.launch.sweep import run_sweep
from kltune.metrics.jsonl import encode
from kltune.trial.outcome import TrialState

Overrides = Sequence[str] | Mapping[str, object]
"""``["trainer.steps=40"]`` or ``{"trainer.steps": 40}``."""


def sweep(  # noqa: PLR0913 - the flags of the command
    spec: str | Path | Mapping[str, object],
    *,
    study: str | Path | None = None,
    trials: int | None = None,
    slots: int | None = None,
    workers: int | None = None,
    seed: int | None = None,
    set: Overrides = (),
    fresh: bool = False,
) -> Study:
    """Run the trials of a spec, or the rest of them: the same call again resumes.

    ``spec`` is a YAML file, or the same as a mapping; paths in a mapping are taken from the current
    folder. All else is as in ``kltune sweep``: same checks, same folder (``studies/<name>`` unless ``study`` says
    otherwise), same report. Progress goes to stderr. In the main thread Ctrl-C saves the running trials, then
    raises ``KeyboardInterrupt``; elsewhere no signal is heard. With several workers a script
    needs ``if __name__ == "__main__":``, as with every use of multiprocessing.

    Returns:
        The study. Its ``best`` is None where no trial respects the limits.

    Raises:
        SpecError: the spec or a path in it is wrong; nothing was started.
        StudyError: the folder belongs to another spec or is in use; nothing was changed.
        EnvironmentMissingError: this machine lacks what the spec needs.
        RunError: every trial failed, or something outside the trials did.
        KeyboardInterrupt: interrupted; the same call goes on from there.
        SystemExit: 75, after SIGTERM; likewise.
    """
    with spec_file(spec) as path:
        request = SweepRequest(
            spec_path=path,
            study_path=None if study is None else as_path("study", study),
            trials=trials,
            slots=slots,
            workers=workers,
            overrides=override_words(set),
            fresh=fresh,
            seed=seed,
        )
        return _run(request, is_mapping=isinstance(spec, Mapping))


def _run(request: SweepRequest, *, is_mapping: bool) -> Study:
    try:
        folder = request.folder(request.load())
        code = run_sweep(_with_command(request, folder, is_mapping=is_mapping))
    except SpecError as error:
        if not is_mapping:
            raise
        # It has no file that a person knows.
        raise SpecError(str(error).replace(str(request.spec_path), "spec")) from error
    if code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt("the running trials are saved: the same call goes on from there")
    if code == ExitCode.TERMINATED:
        raise SystemExit(int(code))
    found = open_study(folder)
    if code == ExitCode.RUN_ERROR:
        failed = found.rows.of_state(TrialState.FAILED)
        first = f": {failed[0].detail}" if failed else ""
        raise RunError(f"{folder}: no trial ended well{first}")
    return found


def _with_command(request: SweepRequest, folder: Path, *, is_mapping: bool) -> SweepRequest:
    """With the command that does the same, for the report; a mapping's is read from the study's own copy."""
    spec_path = folder / "spec.yaml" if is_mapping else request.spec_path
    flags: dict[str, object | None] = {
        "--study": request.study_path,
        "--trials": request.trials,
        "--slots": request.slots,
        "--workers": request.workers,
        "--seed": request.seed,
    }
    words = ["kltune", "sweep", str(spec_path)]
    words += [
        str(word) for flag, value in flags.items() if value is not None for word in (flag, value)
    ]
    words += [word for override in request.overrides for word in ("--set", override)]
    return replace(request, command=tuple(words))


@contextmanager
def spec_file(spec: str | Path | Mapping[str, object]) -> Generator[Path]:
    """The file of a spec; a mapping's is there for as long as the block lasts."""
    if not isinstance(spec, Mapping):
        yield as_path("spec", spec, "the path of a YAML file, or a mapping")
        return
    with tempfile.TemporaryDirectory(prefix="kltune-") as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(_yaml(spec), encoding="utf-8")
        yield path


def override_words(given: Overrides) -> tuple[str, ...]:
    """Overrides as `--set` takes them.

    Raises:
        SpecError: they are neither texts nor a mapping.
    """
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Mapping):
        return tuple(
            f"{key}={json.dumps(_plain({key: value})[key])}" for key, value in given.items()
        )
    words = tuple(given) if isinstance(given, Sequence) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if words is None or not all(isinstance(word, str) for word in words):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SpecError(f"set: must be KEY=VALUE texts, or a mapping (got {given!r})")
    return words


def _yaml(spec: Mapping[str, object]) -> str:
    """The mapping as the text of a spec."""
    stream = io.StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    writer.dump(_plain(spec), stream)
    return stream.getvalue()


def _plain(values: Mapping[str, object]) -> dict[str, Any]:
    """Plain numbers, texts, lists and mappings of it.

    Raises:
        SpecError: a value that no spec can hold.
    """
    try:
        found: dict[str, Any] = json.loads(encode(values))
    except TypeError as error:
        raise SpecError(f"spec: {error}") from error
    if lost := found.get("non_finite"):
        raise SpecError(f"spec: {', '.join(lost)}: must be finite")
    return {key: value for key, value in found.items() if key != "schema"}
