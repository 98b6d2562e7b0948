"""What loading left of the model's files in; whether all of them is in the model out, as a line."""

from __future__ import annotations

from typing import Final

from kltune.check.result import Line
from kltune.grade import Grade

_SHOWN: Final = 3


def weights_line(unread: tuple[str, ...]) -> Line:
    """Whether the model takes all weights of its files; weights that it lacks are refused when it is loaded."""
    title = "the weights fit the model's config"
    numbers = {"num_unread": float(len(unread))}
    if not unread:
        said = "Every weight came from the files, and none was left over."
        return Line("weights", title, Grade.PASS, said, "", numbers)
    shown = ", ".join(unread[:_SHOWN]) + (", ..." if len(unread) > _SHOWN else "")
    said = f"The config has no place for {len(unread)} weight(s) of the files: {shown}."
    remedy = (
        "Give the config that belongs to the weights; a model with fewer layers is another model."
    )
    return Line("weights", title, Grade.WARN, said, remedy, numbers)
