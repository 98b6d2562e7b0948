"""Keeps stdout for the result: whatever else prints (a user's reward, a library) goes to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from typing import TextIO


@contextlib.contextmanager
def reserved_stdout(*, is_reserved: bool) -> Generator[TextIO]:
    """Give the stream for the result; with ``is_reserved``, nothing but it reaches stdout inside.

    The file descriptor itself is turned, so that child processes and C code are caught as well.
    """
    if not is_reserved:
        yield sys.stdout
        return
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no stdout at all
        yield sys.stdout
        return
    os.dup2(2, 1)
    try:
        with (
            os.fdopen(os.dup(kept), "w", encoding="utf-8") as result,
            contextlib.redirect_stdout(sys.stderr),
        ):
            yield result
    finally:
        sys.stderr.flush()
        os.dup2(kept, 1)
        os.close(kept)
