"""Names in a log that were not used in, a note for people on each group of them out. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

_SHOWN: Final = 8
"""Names in one note."""
_JUDGES: Final = re.compile(r"kl|reward|score|gold|judge|accuracy")
"""Names of which a person would ask why they do not show."""


def left_out(
    spare: Mapping[str, Sequence[str]],
    without_use: Mapping[str, Sequence[str]],
    ignored: Collection[str],
) -> list[str]:
    """Say what else the log holds of a quantity, of a KL or of a judgement, and was not used.

    ``spare``: names by the name that was preferred; ``without_use``: by the reason; ``ignored``:
    names that nothing is known of.
    """
    notes = [
        f"{_were(names)} left out: {name} is the better source" for name, names in spare.items()
    ]
    notes += [f"{_were(names)} left out: {why}" for why, names in without_use.items()]
    asked = [name for name in ignored if _JUDGES.search(name.lower())]
    return notes + ([f"{_were(asked)} left out: not a name that kltune knows"] if asked else [])


def _were(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{shown} {'was' if len(names) == 1 else 'were'}"
