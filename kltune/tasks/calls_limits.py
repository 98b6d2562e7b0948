"""A call and a time limit in, its result out, or an error where it did not come back in time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")
_AGAIN_S: Final = 0.5
"""Code that catches everything is interrupted again so soon."""


class OverTimeError(BaseException):
    """The call took too long. No Exception: a function that catches those must not swallow it."""


def within(limit_s: float, call: Callable[[], T]) -> T:
    """Call it, and end it after ``limit_s`` seconds.

    In the main thread the call itself is interrupted, by SIGALRM: waiting, Python code and regular
    expressions end at once, compiled code when it next returns to Python. In another thread nobody
    can do that: the call is left to itself.

    Raises:
        OverTimeError: the time is over.
    """
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        return _interrupted(limit_s, call)
    return _left_behind(limit_s, call)


def _interrupted(limit_s: float, call: Callable[[], T]) -> T:
    is_running = True

    def end(_signal: int, _frame: Any) -> None:
        if is_running:
            raise OverTimeError

    before = signal.signal(signal.SIGALRM, end)
    timer = signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    try:
        try:
            return call()
        finally:
            is_running = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


def _left_behind(limit_s: float, call: Callable[[], T]) -> T:
    results: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  whatever it is, the caller's thread raises it
            raised.append(error)

    thread = threading.Thread(target=work, name="kltune-scorer", daemon=True)
    thread.start()
    thread.join(limit_s)
    if raised:
        raise raised[0]
    if not results:
        raise OverTimeError
    return results[0]
