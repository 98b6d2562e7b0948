"""Entropy, length, repetition and truncation by step in; completions that went bad out."""

from __future__ import annotations

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.symptom import Symptom, SymptomKind
from kltune.symptoms.window import Window, early_and_late


def entropy_collapse(curve: Curve, *, share: float = 0.2, window: int = 5) -> Symptom | None:
    """Entropy (nats per token) of the last ``window`` steps below ``share`` of that of the first ones."""
    found = early_and_late(curve, Quantity.ENTROPY, window)
    if found is None or not found[1].mean < share * found[0].mean:
        return None
    text = "entropy fell from {0} to {1} nats/token, {2} of its start"
    return _symptom(SymptomKind.ENTROPY_COLLAPSE, text, "entropy", found)


def repetition(
    curve: Curve, *, share: float = 0.2, rise: float = 0.1, window: int = 5
) -> Symptom | None:
    """Share of repeated trigrams above ``share``, and by more than ``rise`` above the start's."""
    found = early_and_late(curve, Quantity.REPEATED, window)
    if found is None or not _is_up(found, share, rise):
        return None
    text = "{1} of the trigrams repeat an earlier one of the same completion, {0} at the start"
    return _symptom(SymptomKind.REPETITION, text, "repeated", found)


def truncation(
    curve: Curve, *, share: float = 0.4, rise: float = 0.2, window: int = 5
) -> Symptom | None:
    """Share of truncated completions above ``share``, and by more than ``rise`` above the start's."""
    found = early_and_late(curve, Quantity.TRUNCATED, window)
    if found is None or not _is_up(found, share, rise):
        return None
    text = "{1} of the completions are cut at the length limit, {0} at the start"
    return _symptom(SymptomKind.TRUNCATION, text, "truncated", found)


def length_change(
    curve: Curve, *, collapse: float = 0.4, growth: float = 2.0, window: int = 5
) -> Symptom | None:
    """Mean length of the last ``window`` steps below ``collapse`` or above ``growth`` times that of the first."""
    found = early_and_late(curve, Quantity.LENGTH, window)
    if found is None:
        return None
    start, now = found
    if now.mean < collapse * start.mean:
        text = "completions shrank from {0} to {1} tokens, {2} of their length at the start"
        return _symptom(SymptomKind.LENGTH_COLLAPSE, text, "length", found)
    if now.mean > growth * start.mean:
        text = "completions grew from {0} to {1} tokens, {2} of their length at the start"
        return _symptom(SymptomKind.LENGTH_GROWTH, text, "length", found)
    return None


def _is_up(found: tuple[Window, Window], share: float, rise: float) -> bool:
    start, now = found
    return now.mean > share and now.mean > start.mean + rise


def _symptom(kind: SymptomKind, text: str, name: str, found: tuple[Window, Window]) -> Symptom:
    start, now = found
    is_share = kind in (SymptomKind.REPETITION, SymptomKind.TRUNCATION)
    shown = [f"{one.mean:.0%}" if is_share else f"{one.mean:.3g}" for one in found]
    of_start = f"{now.mean / start.mean:.0%}" if start.mean else ""
    steps = f" (mean of steps {now.first_step}-{now.last_step})"
    numbers = {name: now.mean, f"{name}_start": start.mean}
    detail = text.format(*shown, of_start) + steps
    return Symptom(kind, now.first_step, now.last_step, detail, numbers)
