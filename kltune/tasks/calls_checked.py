"""What a user's function returned or raised in; plain numbers out, or an error that says what is wrong."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Final, cast

from kltune.errors import RunError
from kltune.tasks.protocol import Sample

SHOWN_CHARS: Final = 60
_LONG_BITS: Final = 128
_SAID_CHARS: Final = 400
_PACKAGE: Final = str(Path(__file__).parents[1])


class ScorerError(RunError):
    """A scorer raised, or did not return one finite number or None per completion."""


class ScorerRaisedError(ScorerError):
    """The user's function itself raised: nothing is known of what it would return."""


class ScorerEndedError(ScorerRaisedError):
    """The user's function would have ended the process that calls it."""


class ScorerTimeoutError(ScorerRaisedError):
    """The user's function did not come back in time, or its process died: another call would not either."""


def checked_scores(result: object, samples: Sequence[Sample], name: str) -> list[float]:
    """One float per sample of whatever the function returned, NaN for None.

    Raises:
        ScorerError: the wrong number of them, or something that is no finite number.
    """
    expected = (
        f"expected a list of {len(samples)} finite numbers, one per completion "
        "(None for one that can't be scored)"
    )
    # numpy arrays and tensors, without importing either
    values: object = result.tolist() if hasattr(result, "tolist") else result  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]
    if not isinstance(values, list | tuple):
        raise ScorerError(f"scorer {name} returned {described(result)}; {expected}")
    items = cast("Sequence[object]", values)
    if len(items) != len(samples):
        raise ScorerError(
            f"scorer {name} returned {len(items)} score(s) for {len(samples)} completion(s); {expected}"
        )
    scores: list[float] = []
    for index, item in enumerate(items):
        score = math.nan if item is None else _number(item)  # None and NaN: could not be scored
        if score is None or math.isinf(score):
            raise ScorerError(
                f"scorer {name} returned {described(item)} for completion {index} of {len(items)} "
                f"({samples[index].text[:SHOWN_CHARS]!r}); {expected}"
            )
        scores.append(score)
    return scores


def where_raised(error: BaseException, function: Callable[..., Any]) -> str:
    """File and line where it was raised: the user's own file if it is among those gone through, else the innermost."""
    # Frames of kltune around the call say nothing; a call that does not fit the function has no other.
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_PACKAGE)
    ]
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    if not frames:
        return ""
    last = (own or frames)[-1]
    return f" ({Path(last.filename).name}, line {last.lineno})"


def of_sample(sample: Sample) -> str:
    """The prompt and completion that a message is about, shortened and escaped."""
    text = sample.text
    shown = repr(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")
    return f"prompt {sample.prompt.id!r}, completion {shown}"


def described(value: object) -> str:
    """What a function returned, in a few words."""
    if isinstance(value, int) and value.bit_length() > _LONG_BITS:
        return f"an integer of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return f"a {type(value).__name__} ({_repr(value)[:SHOWN_CHARS]})"


def said(error: BaseException) -> str:
    """What an exception of the user's says, shortened."""
    try:
        text = str(error)
    except Exception as own:  # noqa: BLE001  a user's class, of which this is one more fault
        return f"(its text can't be had: {type(own).__name__})"
    return text if len(text) <= _SAID_CHARS else f"{text[:_SAID_CHARS]}..."


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as own:  # noqa: BLE001  a user's class, of which this is one more fault
        return f"its repr raises {type(own).__name__}"


def _number(item: object) -> float | None:
    """The float that ``item`` stands for: Python's and numpy's numbers, and 0-d arrays; else None."""
    if not isinstance(item, Real) and getattr(item, "shape", None) == ():
        item = cast("Any", item).item()
    if not isinstance(item, Real):
        return None
    try:
        return float(item)
    except OverflowError:
        return math.inf
