"""Samples on which a call fails in, those that are to blame out: by halving, and calling again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kltune.tasks.calls_checked import ScorerError, ScorerTimeoutError
from kltune.tasks.protocol import Sample

Call = Callable[[Sequence[Sample]], list[float]]


def find_blamed(
    call: Call, samples: Sequence[Sample], error: ScorerError, most: int
) -> dict[int, ScorerError]:
    """Indices of samples on which ``call`` fails even alone, with how; ``error``: how it failed on all of them.

    The search stops beyond ``most``. Empty where it fails only on several together.

    Raises:
        ScorerTimeoutError: a call took too long.
    """
    found: dict[int, ScorerError] = {}
    _search(call, samples, (0, len(samples)), error, found, most)
    return found


def _search(
    call: Call,
    samples: Sequence[Sample],
    part: tuple[int, int],
    error: ScorerError,
    found: dict[int, ScorerError],
    most: int,
) -> None:
    first, end = part
    if end - first == 1:
        found[first] = error
        return
    middle = (first + end) // 2
    for half in ((first, middle), (middle, end)):
        if len(found) > most:
            return
        try:
            call(samples[half[0] : half[1]])
        except ScorerTimeoutError:
            raise
        except ScorerError as raised:
            _search(call, samples, half, raised, found, most)
