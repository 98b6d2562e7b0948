"""The trials of a study in, the attempt that comes next out, made in the storage as a whole."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Sequence
from dataclasses import replace

import optuna
from optuna.trial import FrozenTrial, TrialState

from kltune.study.asked import Asked
from kltune.study.lease import Lease
from kltune.study.lives import (
    ATTR_ASK,
    ATTR_ATTEMPT,
    ATTR_LEASE,
    ATTR_NUMBER,
    ATTR_ORIGIN,
    ATTR_RETRY_OF,
    ATTR_SETTING,
    Life,
    is_fixed,
    is_hopeless,
    lives_of,
    needs_another,
    stored_setting,
)
from kltune.study.propose import Draft, propose
from kltune.study.sampler import make_sampler, plan_search
from kltune.study.space import PlannedTrial, sobol_params, suggest
from kltune.study.storage import OpenStudy
from kltune.trial.folder import TrialFolder


class Order:
    """Who is next. Call it while holding the study's turn."""

    def __init__(self, opened: OpenStudy, fixed: Sequence[PlannedTrial], lease: Lease) -> None:
        self._opened = opened
        self._study = opened.optuna_study
        self._spec = opened.spec
        self._fixed = fixed
        self._lease = lease
        self._plan = plan_search(opened.spec)
        self._sobol = sobol_params(opened.spec.search, self._plan.sobol, opened.spec.seed)

    def new_token(self, trials: Sequence[FrozenTrial], token: str = "") -> str:
        """What one ask is known by, should its commit have to be repeated; another where that came to an end since."""
        found = [t.state for t in trials if t.user_attrs.get(ATTR_ASK) == token]
        is_usable = bool(token) and (not found or found[0] is TrialState.RUNNING)
        return token if is_usable else secrets.token_hex(8)

    def is_due(self, trials: Sequence[FrozenTrial], session_from: int) -> bool:
        """Whether there is anything to run within the budget."""
        lives = lives_of(trials)
        return self._has_room(lives, self._pending(lives, session_from))

    def next(self, trials: Sequence[FrozenTrial], session_from: int, token: str) -> Asked | None:
        """Make the next attempt; none when the budget is used.

        ``session_from``: Optuna trials of earlier sessions. ``token``: of this ask; where it was made
        already, this is found.
        """
        if (made := self._made(trials, token)) is not None:
            return made
        lives = lives_of(trials)
        pending = self._pending(lives, session_from)
        if not self._has_room(lives, pending):
            return None
        if any(life[-1].state is TrialState.WAITING for life in lives):
            return self._take_waiting(trials)
        sooner = [life for life in pending if not is_hopeless(life)]
        if pending and (sooner or len(lives) >= self._spec.budget.trials):
            life = (sooner or pending)[0]
            number, draft = lives.index(life), self._repeated(lives, life)
        else:
            life, number = (), len(lives)
            draft = self._drawn(lives)
        attrs: dict[str, object] = {
            ATTR_NUMBER: number,
            ATTR_ATTEMPT: len(life) + 1,
            ATTR_ORIGIN: draft.origin,
            ATTR_SETTING: draft.setting.model_dump_json(),
            ATTR_ASK: token,
            ATTR_LEASE: self._lease.sign(),
        }
        if life:
            attrs[ATTR_RETRY_OF] = life[0].number
        # In one commit: whatever dies in this moment, there is no trial, or one that can go on.
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.RUNNING,
                params=dict(draft.params),
                distributions=dict(draft.distributions),
                user_attrs=attrs,
            )
        )
        return self._made(self._study.get_trials(deepcopy=False), token)

    def _pending(self, lives: Sequence[Life], session_from: int) -> list[Life]:
        retries = self._spec.budget.retries
        return [life for life in lives if needs_another(life, session_from, retries)]

    def _has_room(self, lives: Sequence[Life], pending: Sequence[Life]) -> bool:
        used = sum(life[-1].state is not TrialState.WAITING for life in lives) - len(pending)
        return used < self._spec.budget.trials

    def _repeated(self, lives: Sequence[Life], life: Life) -> Draft:
        """The same setting once more."""
        latest = life[-1]
        attrs = latest.user_attrs
        if ATTR_ORIGIN in attrs and ATTR_SETTING in attrs:
            origin, setting = str(attrs[ATTR_ORIGIN]), stored_setting(attrs)
            return Draft(origin, setting, latest.params, latest.distributions)
        # It died before it was written down; what was asked for is kept.
        given = latest.system_attrs.get("fixed_params") or latest.params
        return self._named(attrs, propose(self._spec, lives, lives.index(life), given))

    def _drawn(self, lives: Sequence[Life]) -> Draft:
        """A new trial: a comparison arm that is missing, a Sobol point, or what the sampler proposes."""
        origins = [str(life[0].user_attrs.get(ATTR_ORIGIN)) for life in lives]
        for fixed in self._fixed:
            if fixed.origin not in origins:
                return Draft(fixed.origin, fixed.setting)
        free = sum(not is_fixed(origin) for origin in origins)
        index = origins.count("sobol")
        if free < self._plan.sobol and index < len(self._sobol):
            point = propose(self._spec, lives, len(lives), self._sobol[index])
            return replace(point, origin="sobol")
        return propose(self._spec, lives, len(lives))

    def _named(self, attrs: dict[str, object], draft: Draft) -> Draft:
        origin = attrs.get(ATTR_ORIGIN)
        return draft if origin is None else replace(draft, origin=str(origin))

    def _take_waiting(self, trials: Sequence[FrozenTrial]) -> Asked | None:
        """What someone else enqueued: its parameters, and the sampler's for the rest."""
        lives = lives_of(trials)
        first = next(t.number for t in trials if t.state is TrialState.WAITING)
        number = next(n for n, life in enumerate(lives) if first in [t.number for t in life])
        waiting = next(t for t in lives[number] if t.number == first)
        self._study.sampler = make_sampler(self._spec, number)
        with warnings.catch_warnings():
            # We send the heartbeats that Optuna says ask does not send (kltune.study.lease).
            warnings.filterwarnings("ignore", message="Heartbeat of storage", category=UserWarning)
            optuna_trial = self._study.ask()
        optuna_trial.set_user_attr(ATTR_LEASE, self._lease.sign())
        attrs = waiting.user_attrs
        if ATTR_ORIGIN in attrs and ATTR_SETTING in attrs and is_fixed(attrs[ATTR_ORIGIN]):
            origin, setting = str(attrs[ATTR_ORIGIN]), stored_setting(attrs)
        else:
            setting = suggest(optuna_trial, self._spec)
            is_guided = self._plan.sampler == "tpe" and bool(optuna_trial.relative_params)
            origin = str(attrs.get(ATTR_ORIGIN) or ("tpe" if is_guided else "random"))
        written = {
            ATTR_NUMBER: number,
            ATTR_ATTEMPT: len(lives[number]),
            ATTR_ORIGIN: origin,
            ATTR_SETTING: setting.model_dump_json(),
        }
        for key, value in written.items():
            if attrs.get(key) != value:
                optuna_trial.set_user_attr(key, value)
        self._lease.take(optuna_trial.number)
        return self._asked(optuna_trial, number, len(lives[number]))

    def _made(self, trials: Sequence[FrozenTrial], token: str) -> Asked | None:
        """The attempt of this ask, where it is there; a second one of the same is ended."""
        found = [t for t in trials if t.user_attrs.get(ATTR_ASK) == token]
        if not found:
            return None
        for double in found[1:]:
            if not double.state.is_finished():
                self._study.tell(double.number, state=TrialState.FAIL)
        lives = lives_of(trials)
        first = found[0].number
        number = next(n for n, life in enumerate(lives) if first in [t.number for t in life])
        self._lease.take(first)
        optuna_trial = optuna.Trial(self._study, self._opened.trial_id(first))
        if found[0].user_attrs[ATTR_NUMBER] != number:  # someone enqueued a trial in between
            optuna_trial.set_user_attr(ATTR_NUMBER, number)
        return self._asked(optuna_trial, number, len(lives[number]))

    def _asked(self, optuna_trial: optuna.Trial, number: int, attempt: int) -> Asked:
        attrs = optuna_trial.user_attrs
        folder = TrialFolder(self._opened.path, number, attempt)
        resume_from = folder.checkpoint_to_resume() if attempt > 1 else None
        origin, setting = str(attrs[ATTR_ORIGIN]), stored_setting(attrs)
        return Asked(optuna_trial, number, attempt, origin, setting, resume_from)
