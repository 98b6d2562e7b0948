"""Rows in, the answer out: which setting, when to stop, how sure; or why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kltune.report.compare import Difference, Plateau, plateau, value_difference
from kltune.report.no_answer import NoAnswer, no_answer
from kltune.report.peaks import trial_peak
from kltune.report.ranking import Ranking, rank
from kltune.report.rows import StudyRows, TrialRow
from kltune.trial.words import is_noise


@dataclass(frozen=True, slots=True)
class Versus:
    """The recommended trial against another one."""

    row: TrialRow
    difference: Difference | None
    """Recommended minus other; none where prompts can't be paired."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One trial, chosen by a rule that the report states."""

    best: TrialRow
    highest: TrialRow
    """The trial with the highest told value; differs from best where a tie was broken."""
    tied: tuple[TrialRow, ...]
    """The others that may be the best as well, by number: no order is claimed among them."""
    plateau: Plateau
    """Its steps are those that can't be told from the best around the peak: the window to stop in."""
    runner_up: Versus | None
    """The nearest of those that are told apart from the best; none where none is."""
    baselines: tuple[Versus, ...]
    """Known recipes and the beta = 0 arm, whether they respect the limit or not."""
    ranking: Ranking


Answer = Recommendation | NoAnswer


def recommend(study: StudyRows) -> Answer:
    """Choose among feasible complete trials.

    Of the settings that may be the best (the first group of `Ranking`) and whose value is within one
    standard error of the highest one's peak, the one with more evaluations in a row around its own peak
    within one standard error of it (`plateau`); then the higher value; then the lower number. The second condition keeps a wide
    interval from recommending a visibly worse value. Repeats on other seeds are no candidates.
    """
    candidates = sorted(
        (t for t in study.trials if t.is_candidate and not is_noise(t.origin)), key=_by_value
    )
    if not candidates:
        return no_answer(study)
    objective, unit = study.spec.objective, study.spec.kl_unit
    ranking = rank(study)
    highest = candidates[0]
    group = ranking.groups[0] if ranking.group_of(highest) == 1 else (highest,)
    tied = tuple(row for row in group if row is not highest)
    widths = {t.number: plateau(t, objective, unit) for t in (highest, *tied)}
    close = [t for t in tied if _is_close(highest, t)]
    best = min((highest, *close), key=lambda t: (-_width(widths[t.number]), *_by_value(t)))
    stretch = _window(study, best, widths[best.number])
    numbers = {row.number for row in group}
    others = [t for t in candidates if t.number not in numbers]
    compared = [t for t in study.trials if is_baseline(t) and t.number != best.number]
    return Recommendation(
        best=best,
        highest=highest,
        tied=tied,
        plateau=stretch,
        runner_up=_versus(study, ranking, best, others[0]) if others else None,
        baselines=tuple(_versus(study, ranking, best, t) for t in compared),
        ranking=ranking,
    )


def is_baseline(row: TrialRow) -> bool:
    """Whether the setting was given (a known recipe or the beta = 0 arm) and not searched."""
    return row.origin == "zero" or row.origin.startswith("baseline")


def _by_value(row: TrialRow) -> tuple[float, int]:
    return (-(-math.inf if row.value is None else row.value), row.number)


def _is_close(highest: TrialRow, other: TrialRow) -> bool:
    """Whether a value is within one standard error of the highest trial's peak."""
    if highest.value is None or other.value is None or highest.peak is None:
        return False
    return highest.value - other.value <= highest.peak.gold_se


def _window(study: StudyRows, best: TrialRow, stretch: Plateau | None) -> Plateau:
    """When to stop: the steps that can't be told from the best one, where that is known."""
    assert stretch is not None, "a feasible complete trial has a peak"
    found = trial_peak(study, best)
    if found is None:
        return stretch
    return replace(stretch, first_step=found.peak.first_step, last_step=found.peak.last_step)


def _width(stretch: Plateau | None) -> int:
    return 0 if stretch is None else stretch.width


def _versus(study: StudyRows, ranking: Ranking, best: TrialRow, other: TrialRow) -> Versus:
    """With the interval that holds for all candidates together; of the pair alone beside one that is none."""
    found = ranking.difference(best, other)
    if found is None:
        found = value_difference(best, other, study.spec.objective, study.spec.kl_unit)
    return Versus(other, found)
