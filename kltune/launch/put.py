"""A path and a text in, the text at the path out: whole or not at all in a file, straight into anything else.

What kltune did not write is never lost: another file, and an output of its own that was edited since, is replaced
only by ``--force``, one of a study's own never.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final

from kltune.errors import RunError, SpecError

_HEAD_BYTES: Final = 600
_EARLIER: Final = re.compile(
    rb"""\A (?:\#!/usr/bin/env\ bash\n)? \#\ [a-z-]+\ \S+,\ (?:exported|converted)\ by\ kltune\ from\ """
    rb"""| \A \"\"\"Tripwire\ for\ a\ run\ of\ [^\n]*\n\nMade\ by\ `kltune\ export\ """
    rb"""| \A \{\"schema\":\ \d+,\ \"source\":\ \{\"study\":\ """,
    re.VERBOSE,
)
"""How each format of ``export`` and ``convert`` begins: TRL, verl, NeMo RL and OpenRLHF; a tripwire; JSON."""

_SEAL: Final = "# As kltune wrote it while the lines above have sha256 "
_SEALED: Final = re.compile(
    rb"(?P<text>.*)" + re.escape(_SEAL.encode()) + rb"(?P<digest>[0-9a-f]{64})\n"
    rb'|(?P<facts>.*), "sha256_of_the_rest": "(?P<digest_of_facts>[0-9a-f]{64})"\}\n',
    re.DOTALL,
)
"""A whole output: the digest that it was written with stands at its end, in a comment or (JSON) as the last key."""

_SIGNS: Final = ("resolved.json", "study.db", "storage.json")
"""A folder with one of these is a study."""
_OWN: Final = frozenset(
    {
        ".lock",
        "env.json",
        "inputs.json",
        "mlflow.json",
        "placement.json",
        "reference.json",
        "resolved.json",
        "storage.json",
    }
    | {"report.html", "report.json", "report.md", "spec.yaml", "timing.json", "validate.json"}
)
_OWN_ENDINGS: Final = (".db", ".db-wal", ".db-shm", ".db-journal", ".jsonl")


def refused(path: Path, *, force: bool = False) -> list[str]:
    """Why no text can be put there, as one problem of ``--out``; empty where it can. Nothing is made to find out."""
    if not path.exists():
        folder = path.parent
        if not folder.is_dir():
            return [
                f"--out: {path} can't be written to: there is no folder {folder}; make it first"
            ]
        is_taken = os.access(folder, os.W_OK | os.X_OK)
    elif _is_replaced(path):
        is_taken = os.access(path.parent, os.W_OK | os.X_OK)
    else:
        can_open = path.is_file() or path.is_fifo() or path.is_char_device()
        is_taken = can_open and os.access(path, os.W_OK)
    if not is_taken:
        return [f"--out: {path} can't be written to; give the path of a file"]
    return _would_lose(path, force=force)


def sealed(text: str) -> str:
    """With its digest at the end, by which an unchanged one is known; what is no output, or has one, stays as it is."""
    data = text.encode(errors="replace")
    if _EARLIER.match(data) is None or _SEALED.fullmatch(data) is not None:
        return text
    if text.startswith("{") and text.endswith("}\n"):
        digest = hashlib.sha256(data.removesuffix(b"}\n")).hexdigest()
        return text.removesuffix("}\n") + f', "sha256_of_the_rest": "{digest}"}}\n'
    return text + f"{_SEAL}{hashlib.sha256(data).hexdigest()}\n"


def put(path: Path, text: str, *, force: bool = False) -> str:
    """Write the text and say what was done: "wrote", or "replaced" where a file was there before.

    A file is replaced by one that is complete. A link, a pipe or a device is opened and written to: a
    rename would put a file in its place. ``force``: replace a file that is none of kltune's, too.

    Raises:
        SpecError: a file is there that would be lost, or a study's own would be made or replaced.
        RunError: it can't be written.
    """
    problems = _would_lose(path, force=force)
    if problems:
        raise SpecError(problems[0])
    was_file = path.is_file()
    data = sealed(text).encode(errors="replace")
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.is_symlink() or (path.exists() and not was_file):
            path.write_bytes(data)
        else:
            scratch.write_bytes(data)
            scratch.replace(path)
    except OSError as error:
        raise RunError(f"{path}: it can't be written: {error.strerror}") from error
    return "replaced" if was_file else "wrote"


def _would_lose(path: Path, *, force: bool) -> list[str]:
    if path.exists() and not path.is_file():
        return []  # a pipe or a device holds nothing
    is_foreign = path.exists() and not _is_earlier(path)
    if _study_of(path) is not None and (is_foreign or _is_own(path.resolve())):
        return [
            f"--out: {path} belongs to the study itself and is never replaced; give another file"
        ]
    if is_foreign and not force:
        return [f"--out: {path} is there and kltune did not write it; --force replaces it"]
    if not force and path.exists() and _is_edited(path):
        return [f"--out: {path} was edited since kltune wrote it; --force replaces it"]
    return []


def _is_edited(path: Path) -> bool:
    """Whether an output of kltune's is not as it was written; one without a digest can't be told from an edited one."""
    try:
        data = path.read_bytes()
    except OSError:
        return True
    if not data:
        return False
    found = _SEALED.fullmatch(data)
    if found is None:
        return True
    rest, digest = found["text"], found["digest"]
    if rest is None:
        rest, digest = found["facts"], found["digest_of_facts"]
    return hashlib.sha256(rest).hexdigest().encode() != digest


def _is_earlier(path: Path) -> bool:
    """Whether the file is an earlier export or conversion, or empty."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError:
        return False
    return not head or _EARLIER.match(head) is not None


def _study_of(path: Path) -> Path | None:
    """The study in whose folder, at any depth, the path lies; links are followed."""
    for folder in path.resolve().parents:
        if any((folder / sign).is_file() for sign in _SIGNS):
            return folder
    return None


def _is_own(path: Path) -> bool:
    return path.name in _OWN or path.name.endswith(_OWN_ENDINGS)


def _is_replaced(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
