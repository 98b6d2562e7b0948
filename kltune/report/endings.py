"""A trial in, the bar of the timeline that it belongs to out: how it ended, by colour, pattern and word."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kltune.report.colours import GREY
from kltune.report.rows import TrialRow
from kltune.trial.outcome import StopReason

_COLOURS = ("#f59e0b", "#3b82f6", "#8b5cf6", "#d97706", "#0891b2", "#a489b4")
_PATTERNS = ("/", "\\", "x", "-", "|", "+", ".")
_GUARDS = tuple(
    reason
    for reason in StopReason
    if reason
    not in (
        StopReason.DONE,
        StopReason.PRUNED,
        StopReason.ERROR,
        StopReason.OUT_OF_MEMORY,
        StopReason.DISK,
        StopReason.INTERRUPTED,
    )
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How some trials ended, and how they look."""

    words: str
    colour: str
    pattern: str
    """Of the bar: one that plotly.js and matplotlib both know; empty: plain."""


def ending_of(row: TrialRow) -> Ending:
    """Done, stopped by a guard (by name), pruned, failed, interrupted or not ended."""
    reason = row.reason
    match reason:
        case None:
            return Ending("no end on record", GREY, "+")
        case StopReason.DONE:
            return Ending("ran all steps", "#0d9488", "")
        case StopReason.PRUNED:
            return Ending("pruned", GREY, "/")
        case StopReason.ERROR | StopReason.OUT_OF_MEMORY | StopReason.DISK:
            return Ending(f"failed: {reason.value}", "#dc2626", "x")
        case StopReason.INTERRUPTED:
            return Ending("interrupted", GREY, "|")
        case _:
            # 15 guards: no two share both colour and pattern.
            place = _GUARDS.index(reason)
            colour = _COLOURS[place % len(_COLOURS)]
            return Ending(f"guard {reason.value}", colour, _PATTERNS[place % len(_PATTERNS)])


def endings(rows: tuple[TrialRow, ...]) -> list[tuple[Ending, list[TrialRow]]]:
    """The endings that occur, the most frequent first, each with its trials in order.

    Colours stay from study to study; of two with one pattern the rarer takes one that is free, so
    that they are told apart without colour.
    """
    found: dict[Ending, list[TrialRow]] = {}
    for row in rows:
        found.setdefault(ending_of(row), []).append(row)
    listed = sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0].words))
    taken: set[str] = set()
    told_apart: list[tuple[Ending, list[TrialRow]]] = []
    for ending, held in listed:
        free = [p for p in (ending.pattern, *_PATTERNS) if p not in taken]
        pattern = free[0] if free else ending.pattern
        taken.add(pattern)
        told_apart.append((replace(ending, pattern=pattern), held))
    return told_apart
