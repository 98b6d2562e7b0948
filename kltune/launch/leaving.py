"""A member's share of a study in; out of the study, and whether it was the last one there.

Members of one machine tell by the study's lock, which belongs to a process and so can't be left behind. A shared
file system may not pass locks on: what members of other machines do is told by their files and the signs of life
in them, and of several that leave at once only one decides at a time, where there is a turn to take.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from kltune.study.crew import FOLDER, Membership, clear_dead, members
from kltune.study.lease import SILENT, STORAGE_ERRORS, lease_seconds
from kltune.study.lock import Hold
from kltune.study.turn import TurnLostError


def leave(
    hold: Hold,
    membership: Membership,
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> bool:
    """Be a member no more; true, with the study held alone, where nobody else works in it.

    Of several that leave at once exactly the last is told so, however they leave.
    """
    has_distant = any(not member.is_here for member in members(hold.study_path))
    try:
        with turn() if has_distant else nullcontext():
            return _leave(hold, membership)
    except (*STORAGE_ERRORS, TurnLostError):  # a database that is gone keeps nobody here
        return _leave(hold, membership)


def _leave(hold: Hold, membership: Membership) -> bool:
    path, own_id = hold.study_path, membership.member.id
    membership.touch()
    found = members(path)
    now = max((member.seen for member in found if member.id == own_id), default=0.0)
    # First: a member that leaves is none whom the others would wait for.
    with contextlib.suppress(OSError):
        _file(path, own_id).unlink()
    # By the clock of the file system, which wrote both times.
    patience_s = SILENT * lease_seconds(os.environ)
    distant = [m for m in members(path) if m.id != own_id and m.is_alive is None]
    is_last = hold.leave() and not any(now - member.seen < patience_s for member in distant)
    if is_last:
        clear_dead(path)  # what they left undone is done, or waits for the next session
    return is_last


def _file(study_path: Path, member_id: str) -> Path:
    return study_path / FOLDER / f"{member_id}.json"
