"""A folder that ``datasets`` saved or a data set of the hub in, its rows as plain Python values out.

No code of the hub is run: ``datasets`` itself no longer does, and is not asked to.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.spec.prompts import PromptsSpec
from kltune.tasks.prompts_files import Table, numbered

_UNREACHABLE: Final = ("DatasetNotFoundError", "GatedRepoError", "RepositoryNotFoundError")
"""The hub's answers, by class name, since their classes come with an extra."""

_ADVICE: Final = (
    "check the id, the network, HF_HUB_OFFLINE and, for a gated data set, `hf auth login`"
)


def read_folder(path: Path) -> Table:
    """Read what ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk`` wrote.

    Raises:
        SpecError: no such folder, or none of these.
        EnvironmentMissingError: ``datasets`` is not installed.
    """
    if not path.is_dir():
        raise SpecError("no such folder")
    library = _library()
    try:
        return _table(library, library.load_from_disk(str(path)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(f"not readable as a folder of datasets: {_first_line(error)}") from error


def read_hub(spec: PromptsSpec) -> Table:
    """Download (or find in the cache) a data set of the hub.

    Raises:
        EnvironmentMissingError: ``datasets`` is not installed, or the hub does not give the data set.
        SpecError: another configuration has to be named, or the data set is not plain data.
    """
    assert spec.dataset is not None
    library = _library()
    try:
        loaded = library.load_dataset(spec.dataset, spec.config, revision=spec.revision)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        told = f"{spec.dataset!r}: {_first_line(error)}"
        if isinstance(error, OSError) or type(error).__name__ in _UNREACHABLE:
            raise EnvironmentMissingError(
                f"task.prompts.dataset: the hub does not give {told}; {_ADVICE}"
            ) from error
        raise SpecError(f"task.prompts.dataset: {told}") from error
    return _table(library, loaded)


def _library() -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise EnvironmentMissingError(
            "task.prompts: reading this needs the package datasets: pip install 'kltune[datasets]'"
        ) from error


def _table(library: Any, loaded: Any) -> Table:
    if not isinstance(loaded, library.DatasetDict):
        return Table("row", numbered(_plain(loaded)))
    by_part: Mapping[str, Any] = {str(name): part for name, part in loaded.items()}
    rows = [row for name, part in by_part.items() for row in numbered(_plain(part), name)]
    return Table("row", rows, parts=tuple(by_part))


def _plain(dataset: Any) -> list[dict[str, Any]]:
    """Whatever the data set decodes (pictures, sounds) is none of a prompt: the stored values are taken."""
    read: Callable[[], list[dict[str, Any]]] = dataset.with_format("arrow")[:].to_pylist
    return read()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
