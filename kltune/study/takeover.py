"""Attempts whose worker is gone in; ended, and said so in their record, out. Call it while holding the study's turn."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from kltune.metrics.jsonl import read_rows
from kltune.metrics.rows import EVENTS, STEPS, last_ending
from kltune.study.lives import (
    ATTR_ATTEMPT,
    ATTR_LEASE,
    ATTR_LOST,
    ATTR_LOST_AT,
    ATTR_LOST_BESIDE,
    ATTR_MAY_RETRY,
    ATTR_NUMBER,
    Life,
    attrs_of,
    is_hopeless,
    lives_of,
    times_lost,
)
from kltune.study.storage import OpenStudy
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict

UNKNOWN = "its process ended without a word"
"""Of a sweep that nobody else could work beside."""

_logger = logging.getLogger(__name__)


def end_dead(
    opened: OpenStudy, trials: Sequence[FrozenTrial], dead: Sequence[FrozenTrial], *, is_lone: bool
) -> int:
    """End ``dead``, each once, so that they go on; return how many.

    ``trials``: all of the study. ``is_lone``: this process works alone, and its predecessor did: whoever
    started it again has seen it die, so that is not held against a trial.
    """
    lives = lives_of(trials)
    beside = Counter(_member_of(t) for t in trials if t.state is TrialState.RUNNING)
    count = 0
    for trial in dead:
        life = next((one for one in lives if any(t.number == trial.number for t in one)), None)
        if life is None:  # a commit that was made twice
            _end(opened, trial, {})
            continue
        folder = _folder_of(opened, trial)
        attrs: dict[str, Any] = {}
        detail = UNKNOWN
        if not is_lone:
            is_alone = beside[_member_of(trial)] == 1
            attrs = {ATTR_LOST if is_alone else ATTR_LOST_BESIDE: True}
            attrs[ATTR_LOST_AT] = _furthest(folder)
            detail = f"its worker {_member_of(trial)} died"
        verdict = _judged(life, trial, attrs, detail)
        is_given_up = verdict.reason is not StopReason.INTERRUPTED
        if is_given_up:
            attrs[ATTR_MAY_RETRY] = False
        if _end(opened, trial, {**attrs, **attrs_of(verdict)}):
            count += 1
            _record(folder, verdict)
            number = trial.user_attrs.get(ATTR_NUMBER)
            what = "is given up" if is_given_up else "is taken up again"
            _logger.warning("trial %s %s: %s", number, what, verdict.detail)
    return count


def _judged(life: Life, trial: FrozenTrial, attrs: dict[str, Any], detail: str) -> Verdict:
    """It goes on, unless its workers died too often in it."""
    trial.user_attrs.update(attrs)
    if not attrs or not is_hopeless(life):
        return Verdict(StopReason.INTERRUPTED, detail)
    times = times_lost(life) + times_lost(life, ATTR_LOST_BESIDE)
    return Verdict(StopReason.ERROR, f"its worker process died {times} times: {detail}")


def _end(opened: OpenStudy, trial: FrozenTrial, attrs: dict[str, Any]) -> bool:
    try:
        for key, value in attrs.items():
            opened.storage.set_trial_user_attr(opened.trial_id(trial.number), key, value)
        opened.storage.set_trial_state_values(opened.trial_id(trial.number), TrialState.FAIL)
    except UpdateFinishedTrialError:
        return False
    return True


def _member_of(trial: FrozenTrial) -> str | None:
    lease: dict[str, Any] = trial.user_attrs.get(ATTR_LEASE) or {}
    member = lease.get("member")
    return member if isinstance(member, str) else None


def _folder_of(opened: OpenStudy, trial: FrozenTrial) -> TrialFolder | None:
    """The folder of the attempt; none where it had not got one."""
    number, attempt = (trial.user_attrs.get(key) for key in (ATTR_NUMBER, ATTR_ATTEMPT))
    if not isinstance(number, int) or not isinstance(attempt, int):
        return None
    folder = TrialFolder(opened.path, number, attempt)
    return folder if folder.path.is_dir() else None


def _furthest(folder: TrialFolder | None) -> int:
    rows = [] if folder is None else read_rows(folder.path / STEPS)
    return max((int(row["step"]) for row in rows), default=0)


def _record(folder: TrialFolder | None, verdict: Verdict) -> None:
    """Note the end in the trial's own record, unless the attempt had said it itself."""
    if folder is None or last_ending(read_rows(folder.path / EVENTS), folder.attempt) is not None:
        return
    rows = [r for r in read_rows(folder.path / STEPS) if int(r["attempt"]) == folder.attempt]
    folder.append_outcome(
        TrialOutcome(
            trial_number=folder.trial_number,
            attempt=folder.attempt,
            verdict=verdict,
            steps_run=max((int(row["step"]) for row in rows), default=0),
            value=None,
            is_feasible=None,
            constraint=None,
            best_step=None,
        )
    )
