"""What a preview saw of one range's ends, and the spec's own range, in; the ends to search, and words on them, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kltune.preview.result import Ends


class Take(Enum):
    """What may become of one end of a range of the spec, by what was seen on its side."""

    AS_SEEN = "gold was seen to turn"
    NARROW = "gold still rises there: it says where not to search, and nothing about where to"
    WIDEN = "gold turns, but RL is known to go further"
    KEEP = "nothing was seen on that side"

    @property
    def own_words(self) -> str:
        """What the spec's end is where it was kept."""
        return "narrower" if self is Take.NARROW else "wider"


Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Found:
    """What was seen of the ends of one range."""

    name: str
    low: float | None
    high: float | None
    takes: tuple[Take, Take]
    """What becomes of the lower and of the upper end."""


def fitted(found: Found, own: Range | None) -> tuple[Ends | None, list[str]]:
    """The range that is suggested, and what a person must know of its ends."""
    low_own, high_own = own or (None, None)
    low = _end(found.low, low_own, found.takes[0], inward=max)
    high = _end(found.high, high_own, found.takes[1], inward=min)
    if own is not None and low is not None and high is not None and low >= high:
        far = "above" if found.low == low else "below"
        return own, [
            f"{found.name}: kept from the spec, though what was seen asks for one {far} its whole range: set it by hand"
        ]
    lower = _words(f"lower end of {found.name}", found.takes[0], low_own, low)
    upper = _words(f"upper end of {found.name}", found.takes[1], high_own, high)
    said = [text for text in (lower, upper) if text]
    return (None if low is None and high is None else (low, high)), said


def _words(which: str, take: Take, own: float | None, end: float | None) -> str:
    """Why an end is not what was seen; empty where it is."""
    if take is Take.KEEP:
        kept = "none is suggested" if own is None else "kept from the spec"
        return f"{which}: {kept}: the sample ends before gold turns"
    if end is None:
        return f"{which}: none is suggested: RL goes further than this forecast"
    if take is not Take.AS_SEEN and end == own:
        return f"{which}: kept from the spec, which is {take.own_words} already"
    return ""


def _end(
    seen: float | None, own: float | None, take: Take, inward: Callable[[float, float], float]
) -> float | None:
    """One end; ``inward`` picks the one that leaves the narrower range."""
    if seen is None or take is Take.KEEP:
        return own
    if take is Take.AS_SEEN:
        return seen
    if own is None:
        return seen if take is Take.NARROW else None
    narrower = inward(seen, own)
    if take is Take.NARROW:
        return narrower
    return own if narrower == seen else seen
