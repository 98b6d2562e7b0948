"""A folder or file of TensorBoard events in, its runs out: OpenRLHF, TRL, verl and others write them."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kltune.diagnose.sources.raw import Merger, RawRun
from kltune.errors import EnvironmentMissingError, StudyError

_PACKAGE: Final = "tensorboard"
"""Optional, and 0.4 s to import: so by name, when it is needed."""
_MARK: Final = "tfevents"
_ARGS: Final = "args/text_summary"
"""Under which a Hugging Face trainer writes its arguments, as JSON."""


def event_files(path: Path) -> list[Path]:
    """List the event files of a folder and its subfolders (or the file itself), in order of time."""
    if path.is_file():
        return [path] if _MARK in path.name else []
    # events.out.tfevents.<Unix time>.<host>...: names sort by time.
    return sorted(
        (file for file in path.rglob(f"*{_MARK}*") if file.is_file()),
        key=lambda f: (f.parent, f.name),
    )


def read_events(path: Path) -> list[RawRun]:
    """Read every run under ``path``: each folder with event files is one.

    Raises:
        EnvironmentMissingError: The package tensorboard is not installed.
        StudyError: The files hold no scalar.
    """
    by_folder: dict[Path, list[Path]] = {}
    for file in event_files(path):
        by_folder.setdefault(file.parent, []).append(file)
    runs = [_read_run(folder, files) for folder, files in by_folder.items()]
    found = [run for run in runs if run.rows]
    if not found:
        raise StudyError(f"{path}: the TensorBoard event files hold no scalar")
    return found


def _read_run(folder: Path, files: Iterable[Path]) -> RawRun:
    merger, facts = Merger(), dict[str, object]()
    for file in files:
        for event in _events(file):
            for value in event.summary.value:
                if value.tag == _ARGS:
                    facts |= _arguments(value)
                elif (found := _scalar(value)) is not None and event.step >= 0:
                    merger.add(int(event.step), {value.tag: found})
    # Each tag is written by itself, and a restarted run overlaps: only what is told of order matters.
    return merger.run(str(folder), "TensorBoard events", "", facts)


def _events(file: Path) -> Iterator[Any]:
    try:
        loader = import_module(f"{_PACKAGE}.backend.event_processing.event_file_loader")
    except ImportError as error:
        raise EnvironmentMissingError(
            f"{file}: reading TensorBoard events needs the package tensorboard; install it by "
            "`pip install 'kltune[tensorboard]'`"
        ) from error
    with _quiet():
        yield from loader.LegacyEventFileLoader(str(file)).Load()


@contextmanager
def _quiet() -> Generator[None]:
    """Keep TensorBoard from logging of a record that a crash cut short."""
    log = logging.getLogger("tensorboard")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _scalar(value: Any) -> float | None:
    """The number of a summary; none where it is text, a picture or a histogram."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or value.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    array = import_module(f"{_PACKAGE}.util.tensor_util").make_ndarray(value.tensor)
    if array.size != 1 or array.dtype.kind not in "fiub":
        return None
    return float(array.reshape(-1)[0])


def _arguments(value: Any) -> dict[str, object]:
    try:
        found: object = json.loads(value.tensor.string_val[0].decode())
    except (ValueError, IndexError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        str(key): one
        for key, one in found.items()
        if isinstance(one, str) or (isinstance(one, int | float) and math.isfinite(one))
    }
