"""A drift or an agreement in, a verdict and a plain sentence out."""

from __future__ import annotations

from typing import Final

from kltune.statistics.agreement import Agreement
from kltune.statistics.drift import Drift, Interval
from kltune.transfer.result import Kind, factor_words

MARGIN: Final = 2.0
"""A quantity transfers where its factor surely lies within 1 / this and this."""

AGREES: Final = 0.5
"""Rank correlation above which settings are said to rank alike."""


def judge_drift(name: str, span: str, drift: Drift) -> tuple[Kind, str]:
    """Transfers only where every two sizes surely lie within `MARGIN`; that 1 is possible is not enough.

    ``span`` names the sizes, as in ``from 0.09 M to 1.4 M parameters``.
    """
    shown = factor_words(drift.factor)
    if all(_is_within(pair) for pair in drift.pairs):
        return Kind.TRANSFERS, (
            f"{name} transfers: {span} it moves by a factor {shown}, and between any two sizes "
            f"surely by less than {MARGIN:g} either way."
        )
    low, high = drift.factor.low, drift.factor.high
    if (low is not None and low > 1) or (high is not None and high < 1):
        return Kind.SHIFTS, f"{name} shifts: {span} by a factor {shown}."
    return Kind.UNKNOWN, (
        f"{name}: can't tell. {span[0].upper()}{span[1:]} the factor may be {_range(drift.factor)}; "
        f"to say that it transfers, all of that would have to lie within 1/{MARGIN:g} and {MARGIN:g}."
    )


def _is_within(factor: Interval) -> bool:
    low, high = factor.low, factor.high
    return low is not None and high is not None and low >= 1 / MARGIN and high <= MARGIN


def _range(factor: Interval) -> str:
    low, high = factor.low, factor.high
    if low is None and high is None:
        return "anything"
    if low is None:
        return f"{high:.2g} or anything below"
    return (
        f"{low:.2g} or anything above" if high is None else f"anything from {low:.2g} to {high:.2g}"
    )


def judge_agreement(smaller: str, larger: str, found: Agreement | None) -> tuple[Kind, str]:
    """Transfers where the correlation is surely above `AGREES`, changes where it is surely below."""
    names = f"{smaller} and {larger}"
    if found is None:
        return (
            Kind.UNKNOWN,
            f"Ranking of settings, {names}: can't tell, too few settings or prompts in both.",
        )
    low, high = found.correlation.low, found.correlation.high
    assert low is not None
    assert high is not None
    pairs = f"{found.num_alike} of {found.num_pairs} pairs of settings are in the same order"
    spread = f"rank correlation {_one(found.correlation)}"
    if low >= AGREES:
        return Kind.TRANSFERS, f"{names} rank the settings alike: {spread}; {pairs}."
    if high < AGREES:
        return Kind.SHIFTS, f"{names} rank the settings differently: {spread}; {pairs}."
    why = (
        ""
        if found.correlation.value is not None
        else ", the settings are too close on these prompts"
    )
    return (
        Kind.UNKNOWN,
        f"Ranking of settings, {names}: can't tell{why}. {spread}; {pairs}.".replace(
            ". rank", ". Rank"
        ),
    )


def _one(interval: Interval) -> str:
    value = "not known" if interval.value is None else f"{interval.value:.2f}"
    return f"{value} ({interval.low:.2f} to {interval.high:.2f})"
