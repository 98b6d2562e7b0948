"""A step's work in, the largest micro-batch that fits in memory found: accelerate's search over divisors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from accelerate.utils import find_executable_batch_size
from accelerate.utils.memory import should_reduce_batch_size

from kltune.errors import OutOfMemoryFault

T = TypeVar("T")

NOTHING_FITS = "No executable batch size found"
"""How accelerate says that the smallest size did not fit either."""


def next_divisor(total: int, size: int) -> int:
    """The largest divisor of ``total`` below ``size``; 0 when there is none."""
    return max((d for d in range(1, size) if total % d == 0), default=0)


class MicroBatch:
    """Remembers how many rows per slot fit, and shrinks to the next divisor when they do not."""

    def __init__(
        self, total: int, size: int | None = None, relief: Callable[[], bool] = lambda: False
    ) -> None:
        """``total`` rows per slot and step; start at ``size``, or at all rows.

        ``relief``: asked where not even one row fits; true if less memory is needed from now on.
        """
        self._total = total
        self._start = total if size is None else size
        self.size = self._start
        self._relief = relief

    def run(self, body: Callable[[int], T]) -> T:
        """Call ``body(size)``; on running out of memory call it again with fewer rows.

        ``body`` must start from scratch each time (gradients zeroed); it draws nothing
        that was not drawn before. The size that worked is kept.

        Raises:
            RuntimeError: not even one row fits.
        """
        try:
            return self._search(body)
        except RuntimeError as error:
            if NOTHING_FITS not in str(error) or not self._relief():
                raise
        self.size = self._start
        return self._search(body)

    def _search(self, body: Callable[[int], T]) -> T:
        try:
            return body(self.size)
        except RuntimeError as error:
            if not should_reduce_batch_size(error):
                raise

        def attempt(batch_size: int) -> T:
            return body(batch_size)

        search = find_executable_batch_size(
            attempt, starting_batch_size=self._shrink(), reduce_batch_size_fn=self._shrink
        )
        return search()

    def _shrink(self) -> int:
        size = next_divisor(self._total, self.size)
        if size:
            self.size = size
        return size


def within_memory(body: Callable[[], T], slot: int) -> T:
    """Call ``body``; a lack of memory that no smaller micro-batch could mend ends the trial in ``slot``.

    Raises:
        OutOfMemoryFault: for ``slot``; the next call has one trial less to hold.
    """
    try:
        return body()
    except RuntimeError as error:
        if NOTHING_FITS not in str(error) and not should_reduce_batch_size(error):
            raise
        reason = str(error).splitlines()[0]
    # Raised outside the handler: the caught error's frames hold the very tensors that did not fit.
    raise OutOfMemoryFault((slot,), f"out of memory, even with the smallest micro-batch: {reason}")
