"""An error of MLflow's, or of what it is made of, in; out: an outage, a refusal or a loss, without credentials."""

from __future__ import annotations

from typing import Final

from kltune.metrics.outage import TrackerLoss, TrackerOutage, TrackerRefusal
from kltune.metrics.own_database import is_damage
from kltune.metrics.tracker import redact

_REFUSED: Final = range(400, 500)
_TEMPORARY: Final = (401, 403, 408, 409, 425, 429)
"""Of the above, those that a person or time puts right."""
_TOO_LARGE: Final = 413
_GONE: Final = "RESOURCE_DOES_NOT_EXIST"
_WORDS_OF_DAMAGE: Final = ("malformed", "file is not a database")
"""sqlite's own: the file is broken."""
_PLACE = PermissionError | FileNotFoundError | NotADirectoryError | ImportError
_MOST_CHARS: Final = 500

Setback = TrackerOutage | TrackerRefusal


def answered(error: Exception, status: object, code: object, *, is_mlflows_own: bool) -> Setback:
    """What MLflow's exception says about the next try.

    ``is_mlflows_own``: whether the answer over HTTP had MLflow's form. One that had not came from something
    between here and it, such as a gateway whose server restarts, and says nothing of a run.
    """
    words = _one_line(error)
    if any(said in words for said in _WORDS_OF_DAMAGE):
        return TrackerLoss(words)
    if words.startswith("API request to") and not is_mlflows_own and status != _TOO_LARGE:
        return TrackerOutage(words)
    if str(code) == _GONE:
        return TrackerLoss(words)
    return TrackerRefusal(words) if _is_refused(status) else TrackerOutage(words)


def failed(error: Exception) -> Setback:
    """What an error below MLflow says about the next try: of a socket, a file, a database."""
    words = _one_line(error)
    if isinstance(error, _PLACE):
        return TrackerRefusal(words)
    if is_damage(error) or is_damage(error.__cause__):
        return TrackerLoss(words)
    status = getattr(getattr(error, "response", None), "status_code", None)
    return TrackerRefusal(words) if _is_refused(status) else TrackerOutage(words)


def _is_refused(status: object) -> bool:
    return status in _REFUSED and status not in _TEMPORARY


def _one_line(error: BaseException) -> str:
    return redact(" ".join(str(error).split()))[:_MOST_CHARS] or type(error).__name__
