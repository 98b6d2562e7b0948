"""How a penalty's gradient lies beside the two references in, a verdict in plain words out.

Rules, in this order; "clear" is three standard errors, "limit" two above the value:

1. The sequence KL's own gradient is not clearly above 0: nothing can be told.
2. The penalty's gradient is not: no pull, noise only, if its limit is 25 % of that length or less;
   above, it can't be told.
3. Its cosine with the sequence KL's gradient is clearly below 0: pushes away from the reference.
4. Its difference from a reference, relative to that reference's length, is 5 % or less, or not clearly
   more: it is that reference's gradient, if the limit of the difference is 50 % or less (10 % where theory
   says that it is another gradient).
5. It is one reference's gradient by rule 4, and no difference from the other is clear either: the two are
   not told apart, and what theory says is said to be theory. But where the limit of the difference from
   the reference that theory names is 5 % or less, it is that one's gradient.
6. The limit is wider, and no difference is clear: can't be told with these samples.
7. Anything else points elsewhere; what theory says it is stands beside the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kltune.audit.statistics import Alignment
from kltune.spec.penalty import Penalty

SAME = 0.05
"""Relative difference up to which two gradients are called the same."""

QUIET = 0.25
"""Limit of the relative length up to which a gradient that is not clearly above 0 is called noise."""

SHARP = 0.5
"""Limit of the relative difference above which "no clear difference" says nothing."""

ALIKE = 0.1
"""The same for a penalty that theory gives another gradient."""

CLEAR = 3.0
"""Standard errors."""

_FULL: Final = Penalty.EXACT_FULL.nature.gradient
_LOCAL: Final = Penalty.EXACT_LOSS.nature.gradient

_EXACT: Final = "the sequence KL's gradient, as good as exact"
_EITHER: Final = (
    "the sequence KL's gradient or its token-local part: not told apart here; in theory"
)


class Kind(StrEnum):
    """What a penalty's gradient turned out to be."""

    UNKNOWN = "unknown"
    NOISE = "noise"
    AWAY = "away"
    FULL = "sequence-full"
    LOCAL = "token-local"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One penalty's verdict."""

    kind: Kind
    text: str
    """For people."""


def judge(penalty: Penalty, full: Alignment, local: Alignment, gap: Alignment) -> Verdict:
    """Say what the expected gradient of ``penalty`` is here.

    ``full``: beside the gradient of the whole sequence's KL; ``local``: beside its token-local part;
    ``gap``: that part beside the whole.
    """
    if not full.is_known:
        return Verdict(
            Kind.UNKNOWN,
            "can't be told: the sequence KL's own gradient is not clearly above 0 "
            "(policy and reference too alike, or too few samples)",
        )
    if full.cosine is None:
        return _without_direction(full)
    if full.cosine.value < 0 and full.cosine.value < -CLEAR * full.cosine.se:
        return Verdict(Kind.AWAY, "pushes away from the reference")
    sharp = SHARP if penalty.nature.gradient in (_FULL, _LOCAL) else ALIKE
    fits_full, fits_local = _is_same(full, sharp), local.is_known and _is_same(local, sharp)
    if (fits_full and local.is_known and _may_be_same(local)) or (
        fits_local and _may_be_same(full)
    ):
        return _either(penalty, full, local, gap)
    if fits_local:
        return Verdict(Kind.LOCAL, f"token-local: {_local_words(gap)}")
    if fits_full:
        return Verdict(Kind.FULL, f"{_EXACT}{_within(full)}")
    if _may_be_same(full) or (local.is_known and _may_be_same(local)):
        below = f"below {_percent(full.missed_limit)}"
        return Verdict(
            Kind.UNKNOWN,
            f"not told from the sequence gradient here (difference {below}); in theory "
            f"{penalty.nature.gradient}",
        )
    return Verdict(Kind.ELSEWHERE, f"points elsewhere: {_theory(penalty)}")


def _without_direction(full: Alignment) -> Verdict:
    limit = full.ratio_limit or 0.0
    below = f"below {_percent(limit)} of the sequence gradient"
    if limit <= QUIET:
        return Verdict(Kind.NOISE, f"no pull: noise only ({below})")
    return Verdict(Kind.UNKNOWN, f"can't be told with these samples: not clearly above 0, {below}")


def _may_be_same(alignment: Alignment) -> bool:
    """Whether the difference is at most ``SAME``, or not clearly above it."""
    distance = alignment.distance
    assert distance is not None
    return distance.value <= SAME**2 + CLEAR * distance.se


def _is_same(alignment: Alignment, sharp: float) -> bool:
    return _may_be_same(alignment) and alignment.missed_limit <= sharp


def _either(penalty: Penalty, full: Alignment, local: Alignment, gap: Alignment) -> Verdict:
    """It fits one reference and may be the other: theory decides, and is said to have decided."""
    theory = penalty.nature.gradient
    if theory not in (_FULL, _LOCAL):
        nearer = Kind.LOCAL if local.missed < full.missed else Kind.FULL
        return Verdict(nearer, f"{_EITHER}: {theory}")
    own, kind = (full, Kind.FULL) if theory == _FULL else (local, Kind.LOCAL)
    if own.missed_limit <= SAME:
        is_full = kind is Kind.FULL
        words = f"{_EXACT}{_within(full)}" if is_full else f"token-local: {_local_words(gap)}"
        return Verdict(kind, words)
    told = (
        "the whole sequence's"
        if kind is Kind.FULL
        else f"the token-local part ({_local_words(gap)})"
    )
    return Verdict(kind if _is_same(own, SHARP) else Kind.UNKNOWN, f"{_EITHER}: {told}")


def _local_words(gap: Alignment) -> str:
    """What every token-local gradient misses, as its exact form shows it."""
    distance = gap.distance
    assert distance is not None
    is_clear = distance.value > CLEAR * distance.se and gap.missed > SAME
    share = (
        _percent(gap.missed) if is_clear else f"less than {_percent(max(gap.missed_limit, SAME))}"
    )
    return f"misses {share} of the sequence gradient here"


def _within(alignment: Alignment) -> str:
    distance = alignment.distance
    assert distance is not None
    exact = distance.se == 0
    return "" if exact else f" (difference below {_percent(alignment.missed_limit)})"


def _theory(penalty: Penalty) -> str:
    gradient = penalty.nature.gradient
    if gradient in (_FULL, _LOCAL):
        return f"not the {gradient} of theory"
    return "no divergence's gradient" if gradient.startswith("none") else gradient


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
