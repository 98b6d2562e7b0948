"""A folder of the record in, a snapshot with a manifest at an address out, and back: whole or not at all.

A version is one manifest and the files that it lists by digest. The files are sent first, the manifest last, and a
reader checks every digest, so a version that is cut short is never taken. There,
``NAME/00002-000007.json`` is the seventh version by the second attempt, ``NAME/00002/DIGEST`` its files. The highest
attempt counts: what a member that was thought dead sends later is never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kltune.errors import StudyError
from kltune.metrics.jsonl import read_json, write_json
from kltune.trial.disk import remove
from kltune.trial.remote import Remote, RemoteTroubleError

_VERSION: Final = re.compile(r"(\d{5})-(\d{6})\.json")
_PART: Final = re.compile(r"[\w.-]+(?:/[\w.-]+)*")
_DIGEST: Final = re.compile(r"[0-9a-f]{40}")
_MOST_MANIFEST: Final = 1 << 20
"""Bytes; a trial has some dozen files."""
_MOST_FILES: Final = 1_000
_KEPT: Final = 2
"""Versions of an attempt that stay there: someone may be reading the one before."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Which state of a folder it is."""

    attempt: int
    count: int

    @property
    def file_name(self) -> str:
        """Of its manifest."""
        return f"{self.attempt:05d}-{self.count:06d}.json"


def snapshot(source: Path, names: Iterable[str], into: Path) -> dict[str, str]:
    """Copy the files ``names`` of a folder that is written meanwhile; return their digests by name.

    What is only ever replaced is linked, what grows is copied; a file that is gone is left out.
    """
    remove(into)
    found: dict[str, str] = {}
    for name in sorted(names):
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if name.endswith(".jsonl"):
                shutil.copyfile(source / name, target)
            else:
                _link(source / name, target)
            found[name] = _digest(target)
    return found


def send(remote: Remote, name: str, attempt: int, folder: Path, files: dict[str, str]) -> Version:
    """Send a snapshot as the next version of ``name`` by this attempt.

    Raises:
        RemoteTroubleError: it could not be sent; the version before counts.
    """
    versions = versions_of(remote, name)
    own = [version for version in versions if version.attempt == attempt]
    version = Version(attempt, own[-1].count + 1 if own else 1)
    place = f"{name}/{attempt:05d}"
    there = set(remote.names(place)) if own else set[str]()
    for file, digest in files.items():
        if digest not in there:
            remote.send(folder / file, f"{place}/{digest}")
            there.add(digest)
    manifest = folder / ".manifest.json"
    write_json(manifest, {"attempt": attempt, "files": files})
    remote.send(manifest, f"{name}/{version.file_name}")
    _clear(remote, name, version, versions, there)
    return version


def fetch(remote: Remote, name: str, into: Path) -> Version | None:
    """Bring the newest whole version of ``name`` into an empty folder; None where there is none.

    Raises:
        RemoteTroubleError: it could not be brought, or is damaged.
    """
    versions = versions_of(remote, name)
    for version in reversed(versions[-_KEPT:]):
        remove(into)
        into.mkdir(parents=True)
        try:
            _bring(remote, name, version, into)
        except RemoteTroubleError:
            if version == versions[max(0, len(versions) - _KEPT)]:
                raise
            continue
        return version
    return None


def versions_of(remote: Remote, name: str) -> list[Version]:
    """The versions of ``name`` that are there, the newest last.

    Raises:
        RemoteTroubleError: nobody could say.
    """
    found = [_VERSION.fullmatch(entry) for entry in remote.names(name)]
    return sorted(Version(int(match[1]), int(match[2])) for match in found if match)


def _bring(remote: Remote, name: str, version: Version, into: Path) -> None:
    manifest = into / ".manifest.json"
    remote.fetch(f"{name}/{version.file_name}", manifest, most=_MOST_MANIFEST)
    try:
        files: dict[str, Any] = dict(read_json(manifest)["files"])
    except (StudyError, KeyError, TypeError, ValueError) as error:
        raise RemoteTroubleError(f"{remote.shown}/{name}/{version.file_name}: {error}") from error
    _refuse_hostile(f"{remote.shown}/{name}", files)
    for file, digest in files.items():
        room = shutil.disk_usage(into).free
        remote.fetch(f"{name}/{version.attempt:05d}/{digest}", into / file, most=room)
        if _digest(into / file) != digest:
            raise RemoteTroubleError(f"{remote.shown}/{name}: {file} is damaged")
    manifest.unlink()


def _refuse_hostile(place: str, files: dict[str, Any]) -> None:
    """Whoever can write at the address may have made the manifest: no path is built from it unseen."""
    if len(files) > _MOST_FILES:
        raise RemoteTroubleError(f"{place}: lists {len(files):,} files (at most {_MOST_FILES:,})")
    for file, digest in files.items():
        parts = file.split("/")
        if not _PART.fullmatch(file) or ".." in parts or "." in parts:
            raise RemoteTroubleError(f"{place}: names a file outside its folder: {file[:80]!r}")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise RemoteTroubleError(f"{place}: {file[:80]} has no digest: {str(digest)[:80]!r}")


def _clear(
    remote: Remote, name: str, newest: Version, before: list[Version], there: set[str]
) -> None:
    """Remove versions that nobody reads any more, and files that only they list; what can't be removed stays."""
    with contextlib.suppress(RemoteTroubleError, StudyError, OSError, KeyError):
        own = [version for version in before if version.attempt == newest.attempt] + [newest]
        # Those of earlier attempts go when this one has a version to fall back on.
        older = [v for v in before if v.attempt < newest.attempt] if len(own) >= _KEPT else []
        for version in [*own[:-_KEPT], *older]:
            remote.drop(f"{name}/{version.file_name}")
        for attempt in {version.attempt for version in older}:
            remote.drop(f"{name}/{attempt:05d}")
        if len(own) > _KEPT:
            listed = _listed(remote, name, own[-_KEPT:])
            for digest in there - listed:
                remote.drop(f"{name}/{newest.attempt:05d}/{digest}")


def _listed(remote: Remote, name: str, versions: list[Version]) -> set[str]:
    found: set[str] = set()
    with tempfile.TemporaryDirectory() as scratch:
        for version in versions:
            target = Path(scratch) / version.file_name
            remote.fetch(f"{name}/{version.file_name}", target)
            found |= set(read_json(target)["files"].values())
    return found


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:40]
