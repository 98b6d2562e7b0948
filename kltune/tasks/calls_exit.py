"""A user's code to run in; an error out where it would end the process by ``os._exit``, which nobody else would see.

Covered: ``os._exit`` and ``posix._exit``, by name or imported while the user's file was loaded, in any thread, by
code that kltune calls or imports. Not covered: an end that no Python function makes (``ctypes``, ``exit`` of a C
extension), and ``_exit`` bound before kltune was imported. The first try of each function happens in a process of
its own, where every end is seen (:mod:`kltune.tasks.calls_probe`); after that only ``task.isolate: true`` sees
those: without it the sweep ends there with the exit code that the code chose, and goes on from its checkpoints
when it is run again.
"""

from __future__ import annotations

import os
import posix
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, NoReturn

REAL_EXIT: Final = os._exit
"""Ends this process at once; for kltune's own use while a user's code runs."""


class ProcessEndError(SystemExit):
    """The user's code wanted to end the process; no Exception, so that few catch it."""

    def __init__(self, status: object) -> None:
        """``status``: the exit code that it wanted."""
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        """What was called."""
        return f"os._exit({self.status!r:.20})"


@contextmanager
def kept_alive() -> Generator[None]:
    """Within it ``os._exit`` raises in this process; in children that the code forks it ends them as ever.

    Raises:
        ProcessEndError: it was called, here or in a thread, whether or not the code swallowed that.
    """
    owner = os.getpid()
    asked: list[ProcessEndError] = []

    def refuse(status: int) -> NoReturn:
        if os.getpid() != owner:
            REAL_EXIT(status)
        asked.append(ProcessEndError(status))
        raise asked[-1]

    os._exit = posix._exit = refuse  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        if os._exit is refuse:
            os._exit = posix._exit = REAL_EXIT  # pyright: ignore[reportPrivateUsage]
    if asked:
        raise asked[0]
