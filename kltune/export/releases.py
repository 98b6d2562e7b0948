"""A framework and a version in, its keys and their defaults out: lists that were read in its source, with tag and date."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from kltune.errors import SpecError

FRAMEWORKS: Final = ("trl", "verl", "openrlhf", "nemo-rl")

_SAME_BY_MINOR: Final = ("trl",)
"""Frameworks whose patch releases have the keys of their minor release: compared in TRL's tags 0.18.0 to 0.29.1."""

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyList:
    """The keys of one release."""

    framework: str
    version: str
    source: str
    """Tag, commit and date, or the package that it was read in."""
    defaults: Mapping[str, Any]

    def __contains__(self, key: str) -> bool:
        return key in self.defaults


def number_of(version: str) -> Version:
    """The numbers of a version, for comparison: ``v0.9.0`` is (0, 9, 0).

    Raises:
        SpecError: it holds none.
    """
    found = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    if found is None:
        raise SpecError(f"--version: must be a release such as 0.9.0 (got {version!r})")
    numbers = [int(part) for part in found.group(1).split(".")]
    return tuple([*numbers, 0, 0, 0][: max(3, len(numbers))])


def listed_versions(framework: str) -> tuple[str, ...]:
    """Releases whose keys are on record, oldest first."""
    names = [file.name for file in _files(framework)]
    versions = [name.removeprefix(f"{framework}-").removesuffix(".json") for name in names]
    return tuple(sorted(versions, key=number_of))


def key_list(framework: str, version: str | None) -> tuple[KeyList, str]:
    """The list that holds for a release, and a warning where that release itself was not read (else empty).

    No version: the newest on record. Between two lists the older one holds: a key that came later
    is not used. Where patches add no key, a list of a later patch holds before one of an older minor release.

    Raises:
        SpecError: a release before all lists, or no release at all.
    """
    listed = listed_versions(framework)
    if version is None:
        return _read(framework, listed[-1]), ""
    asked = number_of(version)
    older = [one for one in listed if number_of(one) <= asked]
    if not older:
        raise SpecError(
            f"--version: the keys of {framework} before {listed[0]} are not on record (got {version}); "
            f"known: {', '.join(listed)}"
        )
    found = _read(framework, _nearest(framework, asked, listed, older))
    if number_of(found.version) == asked:
        return found, ""
    return found, (
        f"{framework} {version} itself was not read; its keys are taken to be those of {found.version} "
        f"({found.source})"
    )


def _nearest(framework: str, asked: Version, listed: tuple[str, ...], older: list[str]) -> str:
    """The list that holds: the last before, but for a later patch of the same minor release."""
    if framework not in _SAME_BY_MINOR or number_of(older[-1])[:2] == asked[:2]:
        return older[-1]
    return next((one for one in listed if number_of(one)[:2] == asked[:2]), older[-1])


def _files(framework: str) -> list[Traversable]:
    folder = resources.files("kltune.export") / "keys"
    return [
        file
        for file in folder.iterdir()
        if re.fullmatch(rf"{framework}-[0-9.]+\.json", file.name) is not None
    ]


def _read(framework: str, version: str) -> KeyList:
    file = resources.files("kltune.export") / "keys" / f"{framework}-{version}.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    source: Mapping[str, str] = facts["source"]
    words = (
        source.get("wheel")
        or f"tag {source['tag']}, commit {source['commit'][:9]}, {source['date']}"
    )
    parts = reversed(facts["files"])  # a class of its own stands before the one that it extends
    defaults = {name: value for part in parts for name, value in part["keys"].items()}
    return KeyList(framework, version, words, defaults)
