"""A study's folder in; out: whether this process is the one that sends it to MLflow.

Many processes may work on a study; one of them mirrors. The lock belongs to the process: the moment it
is gone, by whatever, another one can take over.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

MIRROR_LOCK: Final = ".mirror"


class MirrorLock:
    """The right to send, held or not."""

    def __init__(self, study_path: Path) -> None:
        self._path = study_path / MIRROR_LOCK
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process is the one."""
        return self._descriptor is not None

    def take(self) -> bool:
        """Take the lock if it is free; return whether it is held. Never waits.

        Raises `OSError` where the folder can't be written or its file system knows no locks.
        """
        if self._descriptor is not None:
            return True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let another process take over."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
