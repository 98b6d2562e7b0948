"""The child of `kltune.tasks.calls_child`: questions on stdin in, scores of a user's function on stdout out."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Final

from kltune.errors import KltuneError
from kltune.masking import mask_process
from kltune.tasks.calls_checked import ScorerEndedError
from kltune.tasks.calls_child import Origin, put_message, take_message
from kltune.tasks.calls_exit import REAL_EXIT
from kltune.tasks.scorers import FunctionScorer, scorer_of

_WATCH_S: Final = 1.0


def serve() -> None:
    """The child: answer questions from stdin until it closes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    mask_process(words=[sys.stderr, sys.stdout])
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    scorers: dict[Origin, FunctionScorer] = {}
    while (asked := take_message(sys.stdin.buffer)) is not None:
        origin, limit_s, samples = asked
        try:
            scorer = scorers.get(origin) or scorers.setdefault(origin, scorer_of(origin))
            put_message(answers, "ready")
            answer = ("scores", scorer.call_here(samples, limit_s))
        except KltuneError as error:
            if origin not in scorers:
                put_message(answers, "ready")
            answer = ("error", type(error)(*map(str, error.args)))
        except KeyboardInterrupt:  # no terminal reaches this process: it is the function's own
            answer = (
                "error",
                ScorerEndedError(
                    f"scorer {origin.reference} raised KeyboardInterrupt, though nobody pressed Ctrl-C"
                ),
            )
        put_message(answers, answer)


def _end_with(parent: int) -> None:
    """End when the parent did, whatever the function is doing."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    REAL_EXIT(1)
