"""A study in; out: what is said of its trials that have no end on record, and of all by their state."""

from __future__ import annotations

from kltune.report.rows import StudyRows, TrialRow
from kltune.trial.outcome import TrialState
from kltune.trial.words import count_words


def state_words(study: StudyRows, row: TrialRow) -> str:
    """The trial's state; of one without an end, whether somebody is known to run it."""
    return row.state.value if row.state is not TrialState.RUNNING else unended_words(study)


def unended_words(study: StudyRows) -> str:
    """What a trial without an end is: that depends on whether a process works in the study."""
    if study.is_running is None:
        return "running or cut off"
    return "running" if study.is_running else "unfinished"


def progress_words(study: StudyRows) -> str:
    """How many trials there are of those asked for, by state."""
    counts = [(state, len(study.of_state(state))) for state in TrialState]
    parts = ", ".join(f"{count} {_counted(study, state)}" for state, count in counts if count)
    budget = f"{len(study.trials)} of {count_words(study.spec.budget.trials, 'trial')}"
    return f"{budget}: {parts}" if parts else f"{budget} started"


def _counted(study: StudyRows, state: TrialState) -> str:
    if state is not TrialState.RUNNING:
        return state.value
    words = unended_words(study)
    return f"{words} (no process is known to run them)" if study.is_running is False else words
