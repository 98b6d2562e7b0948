"""A folder that an attempt wrote beside its place in; in its place out, unless a later attempt has the trial by then.

Writing a checkpoint takes seconds, and a process may be stopped in the middle for longer than its lease
holds. What it was about to write over may be a later attempt's by then.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kltune.errors import DiskError
from kltune.study.asked import Asked
from kltune.study.ledger import Ledger
from kltune.trial.disk import remove, writing


def staged(folder: Path, attempt: int) -> Path:
    """Where the attempt writes what is to replace ``folder``: `TrialFolder.tidy` removes what is left there."""
    return folder.with_name(f"{folder.name}.{attempt}.new")


def save_staged(write: Callable[[Path], None], folder: Path, asked: Asked, ledger: Ledger) -> bool:
    """Let ``write`` write what is to be ``folder``; false, with nothing in its place, where the trial was taken over.

    That is asked before and after, since writing takes its time.

    Raises:
        DiskError: it can't be written.
    """
    if not ledger.is_ours(asked):
        return False
    new = staged(folder, asked.attempt)
    remove(new)
    try:
        write(new)
    except DiskError:
        if ledger.is_ours(asked):
            raise
        return False  # whoever took the trial over has tidied up under this one's hands
    if not ledger.is_ours(asked):
        remove(new)
        return False
    _put_in_place(new, folder)
    return True


def _put_in_place(new: Path, folder: Path) -> None:
    """By renames: a crash leaves the old one or the new one."""
    old = folder.with_name(f"{folder.name}.old")
    with writing(folder):
        if folder.exists():
            remove(old)
            folder.rename(old)
        new.rename(folder)
    remove(old)
