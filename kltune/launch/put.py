"""A path and a text in, the text at the path out: whole or not at all in a file, straight into anything else."""

from __future__ import annotations

import os
from pathlib import Path

from kltune.errors import RunError


def refused(path: Path) -> list[str]:
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
    return [] if is_taken else [f"--out: {path} can't be written to; give the path of a file"]


def put(path: Path, text: str) -> str:
    """Write the text and say what was done: "wrote", or "replaced" where a file was there before.

    A file is replaced by one that is complete. A link, a pipe or a device is opened and written to: a
    rename would put a file in its place.

    Raises:
        RunError: it can't be written.
    """
    was_file = path.is_file()
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.is_symlink() or (path.exists() and not was_file):
            with path.open("w", encoding="utf-8", errors="replace") as stream:
                stream.write(text)
        else:
            scratch.write_text(text, encoding="utf-8", errors="replace")
            scratch.replace(path)
    except OSError as error:
        raise RunError(f"{path}: it can't be written: {error.strerror}") from error
    return "replaced" if was_file else "wrote"


def _is_replaced(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
