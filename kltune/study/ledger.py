"""Every read and write of trial state: ask, report, tell; outcomes in, Optuna states out.

What comes next follows from what the storage holds, not from a queue: trials that need
another attempt, then fixed trials, Sobol points, and the sampler. A trial has one number
for life, the rank of its first attempt; each attempt is an Optuna trial of its own.

The budget counts trials that are complete, pruned or running. A failed one is tried again
within ``budget.retries``, then left; it is not replaced in the same session (so a search
that always fails ends), and the same command again gives it another chance. An
interrupted one goes on from its checkpoint and is counted as no failure.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from kltune.spec.trial import TrialSpec
from kltune.study.lease import Lease
from kltune.study.pruner import (
    ATTR_EVALS,
    Standing,
    is_warm,
    judge_against_peers,
    pack_standings,
    standings_at,
)
from kltune.study.sampler import plan_search
from kltune.study.space import FixedTrial, Params, sobol_params, suggest
from kltune.study.storage import OpenStudy
from kltune.trial import outcome as outcomes
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import STATE_OF, StopReason, TrialOutcome, Verdict

_ORIGIN = "kltune.origin"
_SETTING = "kltune.setting"
_RETRY_OF = "kltune.retry_of"
_REASON = "kltune.stop_reason"
_MAY_RETRY = "kltune.may_retry"
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)

_OPTUNA_STATE = {
    outcomes.TrialState.COMPLETE: TrialState.COMPLETE,
    outcomes.TrialState.PRUNED: TrialState.PRUNED,
    outcomes.TrialState.FAILED: TrialState.FAIL,
    outcomes.TrialState.INTERRUPTED: TrialState.FAIL,
}
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """One attempt of a trial, to be run now."""

    optuna_trial: optuna.Trial
    trial_number: int
    attempt: int
    """1 for the first attempt."""
    origin: str
    """``baseline:NAME``, ``zero``, ``sobol``, ``tpe``, ``random``, or ``queued`` by someone else."""
    setting: TrialSpec
    resume_from: Path | None
    """Checkpoint of an earlier attempt."""

    @property
    def is_fixed(self) -> bool:
        """Whether it is a comparison arm, which peers never prune."""
        return _is_fixed(self.origin)


@dataclass(frozen=True, slots=True)
class BestTrial:
    """The best feasible trial that is complete."""

    trial_number: int
    value: float
    setting: TrialSpec


class Ledger:
    """The one place that knows how trials are kept."""

    def __init__(self, opened: OpenStudy, fixed: Sequence[FixedTrial] = ()) -> None:
        self.opened = opened
        self._study = opened.optuna_study
        self._spec = opened.spec
        self._fixed = fixed
        self._plan = plan_search(opened.spec)
        self._sobol = sobol_params(opened.spec.search, self._plan.sobol, opened.spec.seed)
        self._standings: dict[int, dict[int, Standing]] = {}
        self._lease = Lease(opened)

    def recover(self) -> int:
        """End the running trials of workers that died, so that they go on; return how many.

        Whoever holds the study's lock knows that nobody else runs.
        """
        running = [t for t in self._trials() if t.state is TrialState.RUNNING]
        for trial in running:
            detail = "its process ended without a word"
            verdict = Verdict(StopReason.INTERRUPTED, detail)
            for key, value in _attrs_of(verdict).items():
                self.opened.storage.set_trial_user_attr(
                    self.opened.trial_id(trial.number), key, value
                )
            self._study.tell(trial.number, state=TrialState.FAIL)
            _logger.warning(
                "trial %s is taken up again: %s",
                trial.user_attrs.get("kltune.trial_number"),
                detail,
            )
        return len(running)

    def ask(self) -> Asked | None:
        """The next attempt to run; none when the budget is used."""
        trials = self._trials()
        lives = _lives(trials)
        pending = [life for life in lives if self._needs_another(life)]
        used = sum(life[-1].state is not TrialState.WAITING for life in lives) - len(pending)
        if used >= self._spec.budget.trials:
            return None
        if not any(t.state is TrialState.WAITING for t in trials):
            self._queue_next(lives, pending)
        with warnings.catch_warnings():
            # We send the heartbeats that Optuna says ask does not send (kltune.study.lease).
            warnings.filterwarnings("ignore", message="Heartbeat of storage", category=UserWarning)
            optuna_trial = self._study.ask()
        self._lease.take(optuna_trial.number)
        return self._admit(optuna_trial)

    def report(self, asked: Asked, step: int, standing: Standing) -> bool:
        """Record gold on select at ``step``; false where someone else has ended the trial."""
        earlier = self._standings.setdefault(asked.optuna_trial.number, {})
        if step in earlier:
            return True
        earlier[step] = standing
        try:
            asked.optuna_trial.report(standing.gold, step)
            asked.optuna_trial.set_user_attr(ATTR_EVALS, pack_standings(earlier))
        except UpdateFinishedTrialError:
            _logger.warning("trial %d was ended from outside at step %d", asked.trial_number, step)
            return False
        return True

    def judge_peers(self, asked: Asked, step: int) -> Verdict | None:
        """Prune the trial if its peers beat it at ``step``; fixed trials are never pruned."""
        own = self._standings.get(asked.optuna_trial.number, {}).get(step)
        is_due = is_warm(step, self._spec.trainer.steps, self._spec.pruning)
        if own is None or asked.is_fixed or not is_due:
            return None
        others = [t for t in self._trials() if t.number != asked.optuna_trial.number]
        peers = standings_at(step, others)
        return judge_against_peers(own, peers, step, self._spec.pruning, self._spec.kl_unit)

    def tell(self, asked: Asked, outcome: TrialOutcome, *, may_retry: bool = True) -> bool:
        """Record the end of an attempt; false where someone else had ended it before."""
        state = _OPTUNA_STATE[STATE_OF[outcome.verdict.reason]]
        attrs = {
            **_attrs_of(outcome.verdict),
            "kltune.feasible": outcome.is_feasible,
            "kltune.best_step": outcome.best_step,
            _MAY_RETRY: may_retry,
        }
        self._standings.pop(asked.optuna_trial.number, None)
        try:
            for key, value in attrs.items():
                asked.optuna_trial.set_user_attr(key, value)
            if outcome.constraint is not None:
                asked.optuna_trial.set_constraint("kl", float(outcome.constraint))
            value = outcome.value if state is TrialState.COMPLETE else None
            self._study.tell(
                asked.optuna_trial, None if value is None else float(value), state=state
            )
        except UpdateFinishedTrialError:
            _logger.warning(
                "trial %d was ended from outside; its end (%s) stays in its folder only",
                asked.trial_number,
                outcome.verdict.detail,
            )
            return False
        return True

    def renew(self, running: Sequence[Asked]) -> None:
        """Send heartbeats if they are due."""
        self._lease.renew(asked.optuna_trial.number for asked in running)

    def best(self) -> BestTrial | None:
        """The complete feasible trial with the highest value; pruned ones never count."""
        complete = [
            (number, life[-1])
            for number, life in enumerate(_lives(self._trials()))
            if life[-1].state is TrialState.COMPLETE
            and all(c <= 0 for c in life[-1].constraints.values())
        ]
        ranked = sorted(complete, key=lambda pair: -(pair[1].value or 0.0))
        if not ranked:
            return None
        number, trial = ranked[0]
        return BestTrial(number, trial.value or 0.0, _stored_setting(trial.user_attrs))

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _needs_another(self, life: Sequence[FrozenTrial]) -> bool:
        """Whether the trial's latest attempt failed in a way that calls for another one."""
        latest = life[-1]
        if latest.state is not TrialState.FAIL:
            return False
        reason = latest.user_attrs.get(_REASON)
        if latest.number < self.opened.num_before or reason == StopReason.INTERRUPTED:
            return True
        if reason is None or not latest.user_attrs.get(_MAY_RETRY, True):
            return False  # someone failed it by hand, or it would do the same again
        errors = [
            t
            for t in life
            if t.number >= self.opened.num_before
            and t.user_attrs.get(_REASON) != StopReason.INTERRUPTED
        ]
        return len(errors) <= self._spec.budget.retries

    def _queue_next(
        self, lives: Sequence[Sequence[FrozenTrial]], pending: Sequence[Sequence[FrozenTrial]]
    ) -> None:
        """Enqueue what is due before the sampler; nothing where the sampler's turn has come."""
        if pending:
            first, latest = pending[0][0], pending[0][-1]
            kept = {k: latest.user_attrs[k] for k in (_ORIGIN, _SETTING) if k in latest.user_attrs}
            self._study.enqueue_trial(latest.params, {**kept, _RETRY_OF: first.number})
            return
        origins = [str(life[0].user_attrs.get(_ORIGIN)) for life in lives]
        for fixed in self._fixed:
            if fixed.origin not in origins:
                attrs = {_ORIGIN: fixed.origin, _SETTING: fixed.setting.model_dump_json()}
                self._study.enqueue_trial({}, attrs)
                return
        free = sum(not _is_fixed(origin) for origin in origins)
        index = origins.count("sobol")
        if free < self._plan.sobol and index < len(self._sobol):
            params: Params = self._sobol[index]
            self._study.enqueue_trial(params, {_ORIGIN: "sobol"})

    def _admit(self, optuna_trial: optuna.Trial) -> Asked:
        attrs = optuna_trial.user_attrs
        first = attrs.get(_RETRY_OF, optuna_trial.number)
        lives = _lives(self._trials())
        number = next(n for n, life in enumerate(lives) if life[0].number == first)
        origin = attrs.get(_ORIGIN) or self._who_proposed(optuna_trial)
        setting = _stored_setting(attrs) if _is_fixed(origin) else suggest(optuna_trial, self._spec)
        attempt = len(lives[number])
        for key, value in {
            "kltune.trial_number": number,
            "kltune.attempt": attempt,
            _ORIGIN: origin,
            _SETTING: setting.model_dump_json(),
        }.items():
            optuna_trial.set_user_attr(key, value)
        checkpoint = TrialFolder(self.opened.path, number, attempt).last_checkpoint
        resume_from = checkpoint if attempt > 1 and checkpoint.is_dir() else None
        return Asked(optuna_trial, number, attempt, origin, setting, resume_from)

    def _who_proposed(self, optuna_trial: optuna.Trial) -> str:
        """``tpe`` only where its model had told trials to learn from."""
        if self._plan.sampler == "tpe" and optuna_trial.relative_params:
            return "tpe"
        return "random"


def _lives(trials: Sequence[FrozenTrial]) -> list[list[FrozenTrial]]:
    """Attempts by trial, in the order of first attempts: the index is the trial's number."""
    by_first: dict[int, list[FrozenTrial]] = {}
    for trial in sorted(trials, key=lambda t: t.number):
        by_first.setdefault(trial.user_attrs.get(_RETRY_OF, trial.number), []).append(trial)
    return list(by_first.values())


def _attrs_of(verdict: Verdict) -> dict[str, str]:
    return {
        "kltune.state": STATE_OF[verdict.reason].value,
        _REASON: verdict.reason.value,
        "kltune.stop_detail": verdict.detail,
    }


def _is_fixed(origin: str) -> bool:
    return origin == "zero" or origin.startswith("baseline:")


def _stored_setting(user_attrs: Mapping[str, Any]) -> TrialSpec:
    return TrialSpec.model_validate(json.loads(user_attrs[_SETTING]))
