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

MOST_LOST = 3
"""Attempts that a trial may lose with its process, alone in it, over all sessions: then it is to blame itself."""

Life = Sequence[FrozenTrial]
"""All attempts of one trial, oldest first."""


def lives_of(trials: Sequence[FrozenTrial]) -> list[Life]:
    """Attempts by trial, in the order of first attempts: the index is the trial's number."""
    by_first: dict[int, list[FrozenTrial]] = {}
    for trial in sorted(trials, key=lambda t: t.number):
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
    if latest.number < num_before or _is_interrupted(latest):
        return True
    if ATTR_REASON not in latest.user_attrs or not latest.user_attrs.get(ATTR_MAY_RETRY, True):
        return False
    errors = [t for t in life if t.number >= num_before and not _is_interrupted(t)]
    return len(errors) <= retries


def times_lost(life: Life) -> int:
    """How many attempts of the trial took their process with them, as far as can be told."""
    return sum(bool(trial.user_attrs.get(ATTR_LOST)) for trial in life)


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


def _is_interrupted(trial: FrozenTrial) -> bool:
    return trial.user_attrs.get(ATTR_REASON) == StopReason.INTERRUPTED
