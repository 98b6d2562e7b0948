"""A recommendation and its confirmation in, the one setting that the first screen is about out."""

from __future__ import annotations

from dataclasses import dataclass

from kltune.confirm.result import ConfirmResult
from kltune.report.confirm_blocks import find_confirmation, is_of
from kltune.report.peaks import trial_peak
from kltune.report.recommend import Recommendation
from kltune.report.rows import Checkpoint, StudyRows, TrialRow


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting to type. It is the search's, unless a confirmation put another one above it."""

    found: Recommendation
    row: TrialRow
    first_step: int
    last_step: int
    """The window to stop in."""
    confirmation: ConfirmResult | None
    """Where it is about what the search recommends."""
    arm: int = 0
    """Index of the setting among the arms of the confirmation."""

    @property
    def is_changed(self) -> bool:
        """Whether the confirmation put this setting above the one that the search chose."""
        return self.row.number != self.found.best.number


def choose(study: StudyRows, found: Recommendation) -> Choice:
    """Take what the search chose, or what fresh seeds and test prompts say to use instead of it."""
    result, _ = find_confirmation(study.path)
    if result is not None and not is_of(result, found):
        result = None
    arm = 0 if result is None else result.main.winner
    number = found.best.number if result is None else result.arms[arm].number
    row = next((t for t in study.trials if t.number == number), None)
    if row is None:  # the untrained start, or a folder that is gone
        row, arm = found.best, 0
    first, last = found.plateau.first_step, found.plateau.last_step
    if result is not None and row is not found.best:
        peak = trial_peak(study, row)
        first = last = result.arms[arm].stop
        if peak is not None:
            first, last = peak.peak.first_step, peak.peak.last_step
    if not is_judged_by_peak(study):
        first = last = row.steps_run
    return Choice(found, row, first, last, result, arm)


def is_judged_by_peak(study: StudyRows) -> bool:
    """Whether a trial is worth its best checkpoint; else it is its end, or its whole course."""
    return study.spec.objective.metric == "gold_peak"


def stop_point(study: StudyRows, row: TrialRow) -> Checkpoint | None:
    """The evaluation at the stop: the peak, or the last one where trials are judged by their end."""
    return row.peak if is_judged_by_peak(study) else row.final
