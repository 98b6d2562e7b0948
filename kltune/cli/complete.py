"""The beginning of a word in, what the shell may complete it to out. Looks at folder names, loads nothing.

An empty answer leaves the word to the shell's own completion of file names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

Complete = Callable[[str], list[str]]

TRAINERS = ("trl", "verl", "openrlhf", "nemo-rl")
_SIGNS = ("resolved.json", "study.db", "storage.json", "trials")
_DEPTH = 2


def words(*known: str) -> Complete:
    """One of a few words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete


def studies(incomplete: str) -> list[str]:
    """Study folders: below studies/, and below the folder that was begun to be typed."""
    return _matching(incomplete, "studies", _studies_in)


def specs(incomplete: str) -> list[str]:
    """YAML files: here, in sweeps/, and in the folder that was begun to be typed."""
    here = [path for path in _yaml_in(Path()) if path.startswith(incomplete)]
    return sorted({*here, *_matching(incomplete, "sweeps", _yaml_in)})


def specs_and_studies(incomplete: str) -> list[str]:
    """Either of them."""
    return [*specs(incomplete), *studies(incomplete)]


def trials(ctx: typer.Context, incomplete: str) -> list[str]:
    """Numbers of the trials of the study that was typed before."""
    # With the value of a flag still to come, click has parsed no argument yet: it is among the rest.
    typed = (ctx.params.get("study"), *ctx.args)
    study = next((Path(word) for word in typed if word is not None and Path(word).is_dir()), None)
    names = [] if study is None else _folders(study / "trials")
    numbers = sorted(int(name) for name in names if name.isdecimal())
    return [str(number) for number in numbers if str(number).startswith(incomplete)]


def _matching(incomplete: str, usual: str, found_in: Callable[[Path], Iterator[str]]) -> list[str]:
    begun = incomplete.rpartition("/")[0] or ("/" if incomplete.startswith("/") else usual)
    places = dict.fromkeys((usual, begun))
    found = (path for place in places for path in found_in(Path(place)))
    return sorted({path for path in found if path.startswith(incomplete)})


def _studies_in(folder: Path, depth: int = _DEPTH) -> Iterator[str]:
    if any((folder / sign).exists() for sign in _SIGNS):
        yield str(folder)
    elif depth:
        for name in _folders(folder):
            yield from _studies_in(folder / name, depth - 1)


def _yaml_in(folder: Path) -> Iterator[str]:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return
    yield from (str(folder / name) for name in names if name.endswith((".yaml", ".yml")))


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as found:
            return [
                entry.name
                for entry in found
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            ]
    except OSError:
        return []
