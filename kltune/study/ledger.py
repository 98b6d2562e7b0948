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

import logging
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from kltune.spec.trial import TrialSpec
from kltune.study.lease import Lease
from kltune.study.lives import (
    ATTR_ATTEMPT,
    ATTR_LOST,
    ATTR_MAY_RETRY,
    ATTR_NUMBER,
    ATTR_ORIGIN,
    ATTR_RETRY_OF,
    ATTR_SETTING,
    MOST_LOST,
    Life,
    attrs_of,
    is_fixed,
    lives_of,
    needs_another,
    stored_setting,
    times_lost,
)
from kltune.study.pruner import (
    ATTR_EVALS,
    Peers,
    Standing,
    as_judged,
    is_warm,
    judge_against_peers,
    pack_standings,
)
from kltune.study.sampler import plan_search
from kltune.study.space import Params, PlannedTrial, sobol_params, suggest
from kltune.study.storage import OpenStudy
from kltune.trial import outcome as outcomes
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import STATE_OF, StopReason, TrialOutcome, Verdict
from kltune.trial.words import is_noise

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
    """``baseline:NAME``, ``zero``, ``noise:SEED``, ``sobol``, ``tpe`` or ``random``."""
    setting: TrialSpec
    resume_from: Path | None
    """Checkpoint of an earlier attempt."""

    @property
    def is_fixed(self) -> bool:
        """Whether it is a comparison arm, which peers never prune."""
        return is_fixed(self.origin)


@dataclass(frozen=True, slots=True)
class BestTrial:
    """The best feasible trial that is complete."""

    trial_number: int
    value: float
    setting: TrialSpec


class Ledger:
    """The one place that knows how trials are kept."""

    def __init__(self, opened: OpenStudy, fixed: Sequence[PlannedTrial] = ()) -> None:
        self.opened = opened
        self._study = opened.optuna_study
        self._spec = opened.spec
        self._fixed = fixed
        self._plan = plan_search(opened.spec)
        self._sobol = sobol_params(opened.spec.search, self._plan.sobol, opened.spec.seed)
        self._standings: dict[int, dict[int, Standing]] = {}
        self._peers = Peers(opened.spec.objective)
        self._lease = Lease(opened)

    def recover(self) -> int:
        """End the running trials of workers that died, so that they go on; return how many.

        Whoever holds the study's lock knows that nobody else runs.
        """
        running = [t for t in self._trials() if t.state is TrialState.RUNNING]
        for trial in running:
            detail = "its process ended without a word"
            verdict = Verdict(StopReason.INTERRUPTED, detail)
            for key, value in attrs_of(verdict).items():
                self.opened.storage.set_trial_user_attr(
                    self.opened.trial_id(trial.number), key, value
                )
            self._study.tell(trial.number, state=TrialState.FAIL)
            _logger.warning(
                "trial %s is taken up again: %s",
                trial.user_attrs.get(ATTR_NUMBER),
                detail,
            )
        return len(running)

    def ask(self) -> Asked | None:
        """The next attempt to run; none when the budget is used."""
        trials = self._trials()
        lives = lives_of(trials)
        pending = [
            life
            for life in lives
            if needs_another(life, self.opened.num_before, self._spec.budget.retries)
        ]
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
            asked.optuna_trial.report(float(standing.gold), int(step))
            asked.optuna_trial.set_user_attr(ATTR_EVALS, pack_standings(earlier))
        except UpdateFinishedTrialError:
            _logger.warning("trial %d was ended from outside at step %d", asked.trial_number, step)
            return False
        return True

    def judge_peers(self, asked: Asked, step: int) -> Verdict | None:
        """Prune the trial if its peers beat it at ``step``; fixed trials are never pruned."""
        objective = self._spec.objective
        own = as_judged(self._standings.get(asked.optuna_trial.number, {}), objective).get(step)
        is_due = is_warm(step, self._spec.trainer.steps, self._spec.pruning)
        if own is None or asked.is_fixed or not is_due:
            return None
        others = [t for t in self._trials() if t.number != asked.optuna_trial.number]
        peers = self._peers.standings_at(step, others)
        pruning, unit = self._spec.pruning, self._spec.kl_unit
        return judge_against_peers(own, peers, step, pruning, unit, objective.metric)

    def tell(self, asked: Asked, outcome: TrialOutcome, *, may_retry: bool = True) -> bool:
        """Record the end of an attempt; false where someone else had ended it before."""
        state = _OPTUNA_STATE[STATE_OF[outcome.verdict.reason]]
        attrs: dict[str, str | bool] = {**attrs_of(outcome.verdict)}
        if outcome.is_feasible is not None:
            attrs["kltune.feasible"] = bool(outcome.is_feasible)
        if not may_retry:
            attrs[ATTR_MAY_RETRY] = False
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

    def judge_lost(self, asked: Asked, detail: str, *, is_alone: bool) -> Verdict:
        """What a process that died means for its trial: it goes on, unless it was alone in it too often, over all sessions."""
        times = 0
        if is_alone:
            with suppress(UpdateFinishedTrialError):
                asked.optuna_trial.set_user_attr(ATTR_LOST, True)
            times = times_lost(lives_of(self._trials())[asked.trial_number])
        if times < MOST_LOST:
            return Verdict(StopReason.INTERRUPTED, detail)
        return Verdict(StopReason.ERROR, f"its worker process died {times} times: {detail}")

    def renew(self, running: Sequence[Asked]) -> None:
        """Send heartbeats if they are due."""
        self._lease.renew(asked.optuna_trial.number for asked in running)

    def best(self) -> BestTrial | None:
        """The complete feasible trial with the highest value; pruned ones never count."""
        complete = [
            (number, life[-1])
            for number, life in enumerate(lives_of(self._trials()))
            if life[-1].state is TrialState.COMPLETE
            and ATTR_SETTING in life[-1].user_attrs
            and not is_noise(str(life[-1].user_attrs.get(ATTR_ORIGIN)))
            and all(c <= 0 for c in life[-1].constraints.values())
        ]
        ranked = sorted(complete, key=lambda pair: -(pair[1].value or 0.0))
        if not ranked:
            return None
        number, trial = ranked[0]
        return BestTrial(number, trial.value or 0.0, stored_setting(trial.user_attrs))

    def num_ended(self) -> int:
        """Trials that count towards the budget and are over: complete or pruned."""
        over = (TrialState.COMPLETE, TrialState.PRUNED)
        return sum(trial.state in over for trial in self._trials())

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _queue_next(self, lives: Sequence[Life], pending: Sequence[Life]) -> None:
        """Enqueue what is due before the sampler; nothing where the sampler's turn has come."""
        if pending:
            first, latest = pending[0][0], pending[0][-1]
            kept = {
                k: latest.user_attrs[k]
                for k in (ATTR_ORIGIN, ATTR_SETTING)
                if k in latest.user_attrs
            }
            self._study.enqueue_trial(latest.params, {**kept, ATTR_RETRY_OF: first.number})
            return
        origins = [str(life[0].user_attrs.get(ATTR_ORIGIN)) for life in lives]
        for fixed in self._fixed:
            if fixed.origin not in origins:
                attrs = {ATTR_ORIGIN: fixed.origin, ATTR_SETTING: fixed.setting.model_dump_json()}
                self._study.enqueue_trial({}, attrs)
                return
        free = sum(not is_fixed(origin) for origin in origins)
        index = origins.count("sobol")
        if free < self._plan.sobol and index < len(self._sobol):
            params: Params = self._sobol[index]
            self._study.enqueue_trial(params, {ATTR_ORIGIN: "sobol"})

    def _admit(self, optuna_trial: optuna.Trial) -> Asked:
        attrs = optuna_trial.user_attrs
        first = attrs.get(ATTR_RETRY_OF, optuna_trial.number)
        lives = lives_of(self._trials())
        number = next(n for n, life in enumerate(lives) if life[0].number == first)
        origin = attrs.get(ATTR_ORIGIN) or self._who_proposed(optuna_trial)
        setting = stored_setting(attrs) if is_fixed(origin) else suggest(optuna_trial, self._spec)
        attempt = len(lives[number])
        for key, value in {
            ATTR_NUMBER: number,
            ATTR_ATTEMPT: attempt,
            ATTR_ORIGIN: origin,
            ATTR_SETTING: setting.model_dump_json(),
        }.items():
            if attrs.get(key) != value:
                optuna_trial.set_user_attr(key, value)
        folder = TrialFolder(self.opened.path, number, attempt)
        resume_from = folder.checkpoint_to_resume() if attempt > 1 else None
        return Asked(optuna_trial, number, attempt, origin, setting, resume_from)

    def _who_proposed(self, optuna_trial: optuna.Trial) -> str:
        """``tpe`` only where its model had told trials to learn from."""
        if self._plan.sampler == "tpe" and optuna_trial.relative_params:
            return "tpe"
        return "random"
