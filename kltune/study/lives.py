"""Optuna's trials in, kltune's trials for life out: which attempts belong together, and what is owed.

An attempt is an Optuna trial. The first attempts in Optuna's order give trials their
numbers; later attempts point at the first one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from kltune.spec.trial import TrialSpec
from kltune.trial.outcome import STATE_OF, StopReason, Verdict
from kltune.trial.words import is_noise

ATTR_NUMBER = "kltune.trial_number"
ATTR_ATTEMPT = "kltune.attempt"
ATTR_ORIGIN = "kltune.origin"
ATTR_SETTING = "kltune.setting"
ATTR_RETRY_OF = "kltune.retry_of"
"""Optuna number of the trial's first attempt; absent on the first attempt itself."""
ATTR_REASON = "kltune.stop_reason"
ATTR_MAY_RETRY = "kltune.may_retry"
ATTR_LOST = "kltune.lost_alone"
"""Whether the attempt's process died with no other trial in it."""
ATTR_LOST_BESIDE = "kltune.lost_beside"
"""Whether it died with others in it."""
ATTR_LOST_AT = "kltune.lost_at"
"""Steps that the trial had got to, over all attempts, when its worker died."""
ATTR_LEASE = "kltune.lease"
"""Who runs the attempt, and its sign of life (kltune.study.lease)."""
ATTR_ASK = "kltune.ask"
"""Unique to the ask that made the attempt; a second one with the same was made by a repeated commit."""

MOST_LOST = 3
"""Attempts that a trial may lose with its process, alone in it, over all sessions: then it is to blame itself."""
MOST_LOST_BESIDE = 6
"""The same with other trials in the process, which may be to blame."""

Life = Sequence[FrozenTrial]
"""All attempts of one trial, oldest first."""


def lives_of(trials: Sequence[FrozenTrial]) -> list[Life]:
    """Attempts by trial, in the order of first attempts: the index is the trial's number.

    An attempt that a storage took twice, since the answer to the first commit was lost, is there once.
    """
    by_first: dict[int, list[FrozenTrial]] = {}
    seen: set[str] = set()
    for trial in sorted(trials, key=lambda t: t.number):
        token = str(trial.user_attrs.get(ATTR_ASK, trial.number))
        if token in seen:
            continue
        seen.add(token)
        by_first.setdefault(trial.user_attrs.get(ATTR_RETRY_OF, trial.number), []).append(trial)
    return list(by_first.values())


def needs_another(life: Life, num_before: int, retries: int) -> bool:
    """Whether the trial's latest attempt failed in a way that calls for another one.

    Interrupted: always. An error: as long as this session (Optuna numbers from
    ``num_before``) has seen at most ``retries`` of them, and it may help; what an earlier
    session gave up gets another chance. A trial that someone failed by hand is left alone
    until the next session.
    """
    latest = life[-1]
    if latest.state is not TrialState.FAIL:
        return False
    if latest.number < num_before or is_interrupted(latest):
        return True
    if ATTR_REASON not in latest.user_attrs or not latest.user_attrs.get(ATTR_MAY_RETRY, True):
        return False
    errors = [t for t in life if t.number >= num_before and not is_interrupted(t)]
    return len(errors) <= retries


def times_lost(life: Life, attr: str = ATTR_LOST) -> int:
    """How many attempts of the trial took their process with them, as far as can be told.

    Where a worker dies, the trial gets no further than before if it is to blame; each time that it did
    get further, the count begins anew.
    """
    count, furthest = 0, -1
    for trial in life:
        lost_at = trial.user_attrs.get(ATTR_LOST_AT)
        if lost_at is not None and lost_at > furthest:
            count, furthest = 0, int(lost_at)
        count += bool(trial.user_attrs.get(attr))
    return count


def is_hopeless(life: Life) -> bool:
    """Whether the trial's workers died too often for another attempt to come before all else."""
    beside = times_lost(life, ATTR_LOST_BESIDE)
    return times_lost(life) >= MOST_LOST or beside >= MOST_LOST_BESIDE


def is_fixed(origin: str) -> bool:
    """Whether a trial of this origin is outside the search: baseline, beta = 0, or a repeat of one of them."""
    return origin == "zero" or origin.startswith("baseline:") or is_noise(origin)


def stored_setting(user_attrs: Mapping[str, Any]) -> TrialSpec:
    """The setting that the attempt ran, or is to run."""
    return TrialSpec.model_validate(json.loads(user_attrs[ATTR_SETTING]))


def attrs_of(verdict: Verdict) -> dict[str, str]:
    """User attributes that say why an attempt ended."""
    return {
        "kltune.state": STATE_OF[verdict.reason].value,
        ATTR_REASON: verdict.reason.value,
        "kltune.stop_detail": verdict.detail,
    }


def is_interrupted(trial: FrozenTrial) -> bool:
    """Whether the attempt ended for no reason of its own."""
    return trial.user_attrs.get(ATTR_REASON) in (StopReason.INTERRUPTED, StopReason.DISK)
