"""Every read and write of trial state: ask, report, tell; outcomes in, Optuna states out.

What comes next follows from what the storage holds, not from a queue: trials that need
another attempt, then fixed trials, Sobol points, and the sampler. A trial has one number
for life, the rank of its first attempt; each attempt is an Optuna trial of its own, made
whole in one commit.

The budget counts trials that are complete, pruned or running. A failed one is tried again
within ``budget.retries``, then left; it is not replaced in the same session (so a search
that always fails ends), and the same command again gives it another chance. An
interrupted one goes on from its checkpoint and is counted as no failure.

Any number of members may work on one study: whatever is decided is decided while holding
the study's turn, so that all of this holds over all of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from kltune.study import crew
from kltune.study.asked import Asked, BestTrial
from kltune.study.crew import Membership
from kltune.study.lease import STORAGE_ERRORS, Lease
from kltune.study.lives import (
    ATTR_LOST,
    ATTR_MAY_RETRY,
    ATTR_ORIGIN,
    ATTR_REASON,
    ATTR_SETTING,
    MOST_LOST,
    attrs_of,
    lives_of,
    stored_setting,
    times_lost,
)
from kltune.study.order import Order
from kltune.study.pruner import (
    ATTR_EVALS,
    Peers,
    Standing,
    as_judged,
    is_warm,
    judge_against_peers,
    pack_standings,
)
from kltune.study.space import PlannedTrial
from kltune.study.storage import OpenStudy
from kltune.study.takeover import end_dead
from kltune.trial import outcome as outcomes
from kltune.trial.outcome import STATE_OF, StopReason, TrialOutcome, Verdict
from kltune.trial.words import is_noise

__all__ = ("Asked", "BestTrial", "Ledger")

ATTR_SESSION = "kltune.session_from"
"""Of the study: Optuna trials that were there when its present session began, with the first member."""

_OPTUNA_STATE = {
    outcomes.TrialState.COMPLETE: TrialState.COMPLETE,
    outcomes.TrialState.PRUNED: TrialState.PRUNED,
    outcomes.TrialState.FAILED: TrialState.FAIL,
    outcomes.TrialState.INTERRUPTED: TrialState.FAIL,
}
_logger = logging.getLogger(__name__)


class Ledger:
    """The one place that knows how trials are kept."""

    def __init__(
        self,
        opened: OpenStudy,
        fixed: Sequence[PlannedTrial] = (),
        member: Membership | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``member``: this process among those that work on the study; none where it holds it alone.

        ``clock``: seconds, by which the signs of other members are watched.
        """
        self.opened = opened
        self._study = opened.optuna_study
        self._spec = opened.spec
        self._member = member
        self._session_from = opened.num_before
        self._standings: dict[int, dict[int, Standing]] = {}
        self._peers = Peers(opened.spec.objective)
        self.lease = Lease(opened, member, clock)
        """Signs of life, given and watched."""
        self._order = Order(opened, fixed, self.lease)

    @property
    def is_shared(self) -> bool:
        """Whether other processes may work on the study."""
        return self._member is not None

    @contextmanager
    def at_work(self, should_stop: Callable[[], str | None]) -> Generator[None]:
        """Give signs of life while the block runs; once asked to stop, wait for no database."""
        self.opened.patience.heed(lambda: should_stop() is not None)
        try:
            with self.lease.kept():
                yield
        finally:
            self.opened.patience.heed(lambda: False)

    @property
    def is_cut_off(self) -> bool:
        """Whether this session has given the storage up."""
        return self.opened.patience.has_given_up

    def recover(self) -> int:
        """Begin to work: end the running trials of workers that died, so that they go on; return how many.

        Where no other member works, all that run have died, and a new session of the study begins: what
        an earlier one gave up gets another chance.
        """

        def begin() -> int:
            trials = self._trials()
            if self._is_first(trials):
                dead = [t for t in trials if t.state is TrialState.RUNNING]
                self._session_from = len(trials)
                self._study.set_user_attr(ATTR_SESSION, len(trials))
            else:
                dead = self._dead(trials)
                noted = self._study.user_attrs.get(ATTR_SESSION)
                self._session_from = noted if isinstance(noted, int) else self.opened.num_before
            return end_dead(self.opened, trials, dead, is_lone=not self.is_shared)

        return self.opened.decide(begin)

    def ask(self) -> Asked | None:
        """The next attempt to run; none when the budget is used, as far as it can be known now."""
        token = ""

        def next_one() -> Asked | None:
            nonlocal token
            trials = self._trials()
            token = self._order.new_token(trials, token)
            if self.is_shared and end_dead(self.opened, trials, self._dead(trials), is_lone=False):
                trials = self._trials()
            return self._order.next(trials, self._session_from, token)

        return self.opened.decide(next_one)

    def is_due(self) -> bool:
        """Whether `ask` would most likely give one; looks without the turn, at little cost."""
        trials = self._trials()
        return bool(self._dead(trials)) or self._order.is_due(trials, self._session_from)

    def is_settled(self) -> bool:
        """Whether nothing can be due any more: no other member runs a trial, which might die or fail."""
        if not self.is_shared:
            return True
        return not any(t.state is TrialState.RUNNING for t in self._trials()) and not self.is_due()

    def is_ours(self, asked: Asked) -> bool:
        """Whether the attempt still counts: asked before anything is written over what a later one would go on from.

        Where the storage can't be asked, it does as long as no other member can have missed this one.
        """
        if not self.is_shared:
            return True
        number = asked.optuna_trial.number
        if self.lease.is_lost(number):
            return False
        try:
            trial_id = self.opened.trial_id(number)
            return self.opened.storage.get_trial(trial_id).state is TrialState.RUNNING
        except STORAGE_ERRORS:
            return self.lease.is_fresh()

    def is_taken_over(self, asked: Asked) -> bool:
        """Whether another member took this one for dead, and the trial over."""
        trial = self.opened.storage.get_trial(self.opened.trial_id(asked.optuna_trial.number))
        is_over = trial.state is TrialState.FAIL and ATTR_REASON in trial.user_attrs
        return self.is_shared and is_over

    def let_go(self, asked: Asked) -> None:
        """Forget an attempt that was taken over."""
        self._standings.pop(asked.optuna_trial.number, None)
        self.lease.drop(asked.optuna_trial.number)

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

        def end() -> None:
            for key, value in attrs.items():
                asked.optuna_trial.set_user_attr(key, value)
            if outcome.constraint is not None:
                asked.optuna_trial.set_constraint("kl", float(outcome.constraint))
            value = outcome.value if state is TrialState.COMPLETE else None
            self._study.tell(
                asked.optuna_trial, None if value is None else float(value), state=state
            )

        try:
            self.opened.decide(end)
        except UpdateFinishedTrialError:
            _logger.warning(
                "trial %d was ended from outside; its end (%s) stays in its folder only",
                asked.trial_number,
                outcome.verdict.detail,
            )
            return False
        finally:
            self.lease.drop(asked.optuna_trial.number)
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

    def _dead(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Running trials of members that are gone."""
        if not self.is_shared:
            return []
        return [t for t in trials if t.state is TrialState.RUNNING and self.lease.is_dead(t)]

    def _is_first(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether no other member works: none is here, and none elsewhere has a trial that runs."""
        if self._member is None:
            return True
        others = crew.others(self.opened.path, self._member.member.id)
        owners = {self.lease.owner(t) for t in trials if t.state is TrialState.RUNNING}
        return not any(member.is_alive or member.id in owners for member in others)
