"""A trial whose controller moved beta in; the beta to hold in a trainer that has no such controller, out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from kltune.report.choice import stop_point
from kltune.report.native import typed_coefficient
from kltune.report.rows import StudyRows, TrialRow
from kltune.trial.words import number

_SHORTEST = 5
"""Steps."""


@dataclass(frozen=True, slots=True)
class Held:
    """A constant beta in place of one that moved; ``kltune export`` writes the same."""

    beta: float
    """Median over the window, in the study's beta unit."""
    first_step: int
    last_step: int
    """The last tenth of the steps up to the stop, at least five."""


def held_beta(study: StudyRows, row: TrialRow) -> Held | None:
    """None where nothing moves beta by KL, or no step is on record."""
    stop = stop_point(study, row)
    if not row.setting.controller.has_target or row.setting.beta == 0 or stop is None:
        return None
    pairs = [
        pair for pair in zip(row.curve.step, row.curve.beta, strict=True) if pair[0] <= stop.step
    ]
    window = pairs[-max(_SHORTEST, len(pairs) // 10) :]
    finite = [beta for _, beta in window if math.isfinite(beta)]
    return Held(median(finite), window[0][0], window[-1][0]) if finite else None


def held_words(study: StudyRows, row: TrialRow) -> str:
    """What to type where the trainer has no controller; empty where beta does not move by KL."""
    held = held_beta(study, row)
    if held is None:
        return ""
    typed = typed_coefficient(study, row)
    coefficient = (
        "" if typed is None else f", KL coefficient {number(typed * held.beta / row.setting.beta)}"
    )
    where = f"its median over steps {held.first_step} to {held.last_step}"
    return f"a trainer without it: hold beta at {number(held.beta)}{coefficient} ({where})"
