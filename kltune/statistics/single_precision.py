"""Scores' mean and spread in, what is left of their differences in single precision out."""

from __future__ import annotations

from typing import Final

LARGEST: Final = (2 - 2**-23) * 2.0**127
"""Largest single-precision number."""

STEP: Final = 2.0**-23
"""Distance of neighbouring single-precision numbers over their size, at most."""

LOST: Final = 0.01
"""Step over spread from which on rounding counts: a hundredth of the spread, about that of its own estimate from
thousands of scores."""


def lost_in_single(mean: float, spread: float, largest: float) -> str | None:
    """Why scores can't be told apart in single precision, in which training computes; none where they can.

    ``spread``: standard deviation, above 0; ``largest``: absolute value of a score.
    """
    if largest > LARGEST:
        return f"scores up to {largest:.3g} are beyond single precision ({LARGEST:.2g})"
    step = abs(mean) * STEP
    if spread > 0 and step > LOST * spread:
        return (
            f"the scores' mean of {mean:.3g} drowns their spread of {spread:.3g}: in single precision numbers of that "
            f"size are {step:.2g} apart"
        )
    return None
