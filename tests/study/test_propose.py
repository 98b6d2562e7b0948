from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from kltune.spec.trial import TrialSpec
from kltune.study.lives import ATTR_REASON, ATTR_RETRY_OF, lives_of
from kltune.study.propose import propose
from kltune.trial.record import read_trials
from tests.fake_bank import FakeBank, small_spec
from tests.small_search import search, stop_after


def settings(path: Path) -> list[TrialSpec]:
    return [record.setting for record in read_trials(path)]


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_search_that_was_interrupted_again_and_again_proposes_what_it_would_have(
    tmp_path: Path, sampler: str
) -> None:
    spec = small_spec(
        budget={"trials": 8},
        trainer={"steps": 4},
        evaluate={"every": 2},
        sampler={"name": sampler},
    )
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    search(tmp_path / "whole", spec, FakeBank(2, steps=4))
    for calls in (3, 4, 2, 9, 5, 1, 99):
        search(tmp_path / "cut", spec, FakeBank(2, steps=4), should_stop=stop_after(calls))
    assert settings(tmp_path / "cut") == settings(tmp_path / "whole")
    assert len(set(settings(tmp_path / "cut"))) == 8
    origins = [record.origin for record in read_trials(tmp_path / "cut")]
    assert origins.count("tpe") >= (4 if sampler == "tpe" else 0)


def ended(number: int, beta: float, **attrs: object) -> optuna.trial.FrozenTrial:
    is_told = ATTR_REASON not in attrs
    trial = create_trial(
        state=TrialState.COMPLETE if is_told else TrialState.FAIL,
        value=1 - abs(beta - 0.3) if is_told else None,
        params={"beta": beta},
        distributions={"beta": optuna.distributions.FloatDistribution(1e-3, 1.0, log=True)},
        user_attrs=dict(attrs),
    )
    trial.number = number
    return trial


SPEC = small_spec(search={"beta": {"log": [1e-3, 1.0]}}, budget={"trials": 20})
BETAS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.9, 0.05, 0.6)


def test_members_differ_by_the_number_of_the_trial_that_they_ask_for() -> None:
    lives = lives_of([ended(n, beta) for n, beta in enumerate(BETAS)])
    drafts = [propose(SPEC, lives, len(lives) + more) for more in range(4)]
    assert {draft.origin for draft in drafts} == {"tpe"}
    assert len({draft.setting.beta for draft in drafts}) == 4
    assert propose(SPEC, lives, len(lives)) == drafts[0]


def test_how_often_a_trial_was_interrupted_changes_no_proposal() -> None:
    whole = lives_of([ended(n, beta) for n, beta in enumerate(BETAS)])
    cut = [ended(0, BETAS[0], **{ATTR_REASON: "interrupted"})]
    cut += [ended(n, beta) for n, beta in enumerate(BETAS) if n > 0]
    cut += [ended(len(BETAS), BETAS[0], **{ATTR_RETRY_OF: 0})]
    assert propose(SPEC, lives_of(cut), len(BETAS)) == propose(SPEC, whole, len(BETAS))


def test_trials_that_go_on_later_are_known_as_such_that_run() -> None:
    done = [ended(n, beta) for n, beta in enumerate(BETAS)]
    cut = [ended(n, 0.0015, **{ATTR_REASON: "interrupted"}) for n in range(8, 18)]
    running: list[optuna.trial.FrozenTrial] = []
    for trial in cut:
        one = create_trial(
            state=TrialState.RUNNING, params=trial.params, distributions=trial.distributions
        )
        one.number = trial.number
        running.append(one)

    def next_ones(trials: list[optuna.trial.FrozenTrial]) -> list[float]:
        return [propose(SPEC, lives_of(trials), 18 + more).setting.beta for more in range(8)]

    assert next_ones([*done, *cut]) == next_ones([*done, *running]) != next_ones(done)


def test_what_is_given_is_not_drawn_and_the_rest_is() -> None:
    spec = small_spec()
    draft = propose(spec, [], 3, {"beta": 0.25, "controller": "fixed"})
    assert (draft.setting.beta, draft.setting.controller.value) == (0.25, "fixed")
    assert draft.setting.penalty is not None
    assert set(draft.params) == set(draft.distributions) == {"beta", "controller", "penalty"}
