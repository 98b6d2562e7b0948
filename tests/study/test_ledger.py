from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event

from kltune.metrics.record import RewardScale
from kltune.spec.penalty import Penalty
from kltune.spec.study import StudySpec
from kltune.study.ledger import Asked, Ledger
from kltune.study.pruner import Standing
from kltune.study.space import fixed_trials
from kltune.study.storage import open_study
from kltune.trial.outcome import STATE_OF, StopReason, TrialOutcome, Verdict
from kltune.trial.outcome import TrialState as KltuneState
from tests.fake_bank import small_spec

SCALE = RewardScale(sigma=0.5, std=0.5, mean=0.0, num_groups=8, mean_tokens=20.0)


def ledger_of(path: Path, spec: StudySpec) -> Ledger:
    return Ledger(open_study(path, spec), fixed_trials(spec, SCALE))


def outcome_of(
    asked: Asked, reason: StopReason, value: float = 0.5, constraint: float = -0.5
) -> TrialOutcome:
    is_complete = STATE_OF[reason] is KltuneState.COMPLETE
    is_told = is_complete or reason is StopReason.PRUNED
    return TrialOutcome(
        trial_number=asked.trial_number,
        attempt=asked.attempt,
        verdict=Verdict(reason, f"because {reason}"),
        steps_run=20,
        value=value if is_complete else None,
        is_feasible=constraint <= 0 if is_complete else None,
        constraint=constraint if is_told else None,
        best_step=10 if is_told else None,
    )


def run(ledger: Ledger, reasons: Sequence[StopReason] = (), **how: float) -> list[Asked]:
    """Ask and tell until the budget is used; trials end for ``reasons``, then as done."""
    done: list[Asked] = []
    while (asked := ledger.ask()) is not None:
        reason = reasons[len(done)] if len(done) < len(reasons) else StopReason.DONE
        ledger.tell(asked, outcome_of(asked, reason, **how))
        done.append(asked)
    return done


def trials_of(ledger: Ledger) -> list[optuna.trial.FrozenTrial]:
    return ledger.opened.optuna_study.get_trials()


def test_fixed_trials_come_first_then_sobol_points_then_the_model(tmp_path: Path) -> None:
    search = {**small_spec().search.model_dump(exclude_none=True)}
    search["beta"] = {"log": [1e-3, 1], "zero": True}
    spec = small_spec(budget={"trials": 9}, baselines=["deepseekmath", "verl-ppo"], search=search)
    done = run(ledger_of(tmp_path, spec))
    assert [asked.origin for asked in done] == [
        *["baseline:deepseekmath", "baseline:verl-ppo", "zero"],
        *["sobol", "sobol"],
        *["tpe"] * 4,
    ]
    assert [asked.trial_number for asked in done] == list(range(9))
    assert done[0].setting.penalty is Penalty.K3_LOSS  # outside the choices of the search
    assert done[0].optuna_trial.params == {}


def test_with_several_slots_the_model_guides_before_all_sobol_points_are_told(
    tmp_path: Path,
) -> None:
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 12}))
    running = [asked for _ in range(4) if (asked := ledger.ask()) is not None]
    assert [asked.origin for asked in running] == ["sobol"] * 4
    for asked in running[:2]:
        ledger.tell(asked, outcome_of(asked, StopReason.DONE))
    following = ledger.ask()
    assert following is not None
    assert following.origin == "tpe"


@pytest.mark.parametrize("reason", list(StopReason))
def test_every_ending_has_its_optuna_state(tmp_path: Path, reason: StopReason) -> None:
    ledger = ledger_of(tmp_path, small_spec())
    asked = ledger.ask()
    assert asked is not None
    ledger.report(asked, 10, Standing(0.4, 0.1, 0.02))
    assert ledger.tell(asked, outcome_of(asked, reason))
    trial = trials_of(ledger)[0]
    expected = {
        StopReason.PRUNED: TrialState.PRUNED,
        StopReason.ERROR: TrialState.FAIL,
        StopReason.NEGATIVE_KL: TrialState.FAIL,
        StopReason.OUT_OF_MEMORY: TrialState.FAIL,
        StopReason.DISK: TrialState.FAIL,
        StopReason.INTERRUPTED: TrialState.FAIL,
    }
    assert trial.state is expected.get(reason, TrialState.COMPLETE)
    assert trial.user_attrs["kltune.stop_reason"] == reason.value
    assert trial.user_attrs["kltune.stop_detail"] == f"because {reason}"
    assert trial.user_attrs["kltune.state"] == STATE_OF[reason].value
    assert json.loads(trial.user_attrs["kltune.setting"])["beta"] == asked.setting.beta
    is_told = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
    assert trial.constraints == ({"kl": -0.5} if is_told else {})
    assert trial.intermediate_values == {10: 0.4}


def test_numbers_of_numpy_are_told_as_plain_numbers(tmp_path: Path) -> None:  # field case B23
    ledger = ledger_of(tmp_path, small_spec())
    asked = ledger.ask()
    assert asked is not None
    ledger.report(asked, 5, Standing(np.float32(0.5), np.float64(0.1), np.float32(0.25)))
    ledger.tell(
        asked,
        outcome_of(asked, StopReason.DONE, np.float32(0.5), np.float64(-0.25)),  # type: ignore[arg-type]
    )
    trial = trials_of(ledger)[0]
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 0.5)
    assert trial.user_attrs["kltune.evals"] == {"5": [0.5, 0.1, 0.25]}


def test_a_running_complete_or_pruned_trial_uses_the_budget(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 3}))
    first, second = ledger.ask(), ledger.ask()
    assert first is not None
    assert second is not None
    ledger.tell(first, outcome_of(first, StopReason.PRUNED))
    assert ledger.ask() is not None
    assert ledger.ask() is None


def test_a_failing_trial_gets_its_retries_then_the_search_goes_on(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 3, "retries": 2})  # field case B6
    done = run(ledger_of(tmp_path, spec), [StopReason.ERROR] * 3)
    assert [(a.trial_number, a.attempt) for a in done] == [(0, 1), (0, 2), (0, 3), (1, 1), (2, 1)]
    assert len({a.setting for a in done[:3]}) == 1
    assert len({a.origin for a in done[:3]}) == 1


def test_a_search_that_always_fails_comes_to_an_end(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 2, "retries": 1})
    done = run(ledger_of(tmp_path, spec), [StopReason.ERROR] * 99)
    assert [a.trial_number for a in done] == [0, 0, 1, 1]


def test_an_error_that_would_come_again_is_not_retried(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 2}))
    asked = ledger.ask()
    assert asked is not None
    ledger.tell(asked, outcome_of(asked, StopReason.ERROR), may_retry=False)
    assert [a.trial_number for a in run(ledger)] == [1]


def test_what_one_session_gave_up_the_next_one_tries_again(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 2, "retries": 0})
    run(ledger_of(tmp_path, spec), [StopReason.ERROR])
    done = run(ledger_of(tmp_path, spec))
    assert [(a.trial_number, a.attempt) for a in done] == [(0, 2)]


def test_an_interrupted_trial_goes_on_from_its_checkpoint_and_counts_as_no_failure(
    tmp_path: Path,
) -> None:
    spec = small_spec(budget={"trials": 2, "retries": 0})
    ledger = ledger_of(tmp_path, spec)
    asked = ledger.ask()
    assert asked is not None
    checkpoint = tmp_path / "trials" / "00000" / "checkpoints" / "last"
    checkpoint.mkdir(parents=True)
    ledger.tell(asked, outcome_of(asked, StopReason.INTERRUPTED))
    again = ledger_of(tmp_path, spec).ask()
    assert again is not None
    assert (again.trial_number, again.attempt, again.resume_from) == (0, 2, checkpoint)
    assert (again.setting, again.origin) == (asked.setting, asked.origin)
    assert again.optuna_trial.params == asked.optuna_trial.params
    assert again.optuna_trial.number == 1


def test_trials_of_a_worker_that_died_are_taken_up_again(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 3})
    ledger = ledger_of(tmp_path, spec)
    lost = [ledger.ask(), ledger.ask()]
    following = ledger_of(tmp_path, spec)
    assert following.recover() == 2
    states = [t.user_attrs["kltune.stop_reason"] for t in trials_of(following)]
    assert states == ["interrupted", "interrupted"]
    done = run(following)
    assert [(a.trial_number, a.attempt) for a in done] == [(0, 2), (1, 2), (2, 1)]
    assert [a.setting for a in done[:2]] == [a.setting for a in lost if a is not None]
    assert following.recover() == 0


def test_numbers_are_for_life_whatever_is_retried_in_between(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 4, "retries": 2})
    ledger = ledger_of(tmp_path, spec)
    e, ok, i = StopReason.ERROR, StopReason.DONE, StopReason.INTERRUPTED
    done = run(ledger, [ok, e, e, ok, i, ok, ok])
    assert [(a.trial_number, a.attempt) for a in done] == [
        *[(0, 1), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)]
    ]
    kept = {t.number: t.user_attrs["kltune.trial_number"] for t in trials_of(ledger)}
    assert kept == {0: 0, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 3}


def test_eight_after_six_runs_exactly_two_more(tmp_path: Path) -> None:
    assert len(run(ledger_of(tmp_path, small_spec(budget={"trials": 6})))) == 6
    assert run(ledger_of(tmp_path, small_spec(budget={"trials": 6}))) == []
    more = run(ledger_of(tmp_path, small_spec(budget={"trials": 8})))
    assert [a.trial_number for a in more] == [6, 7]


def test_a_resumed_search_does_not_propose_its_first_points_again(tmp_path: Path) -> None:
    first = run(ledger_of(tmp_path, small_spec(budget={"trials": 4}, sampler={"name": "random"})))
    second = run(ledger_of(tmp_path, small_spec(budget={"trials": 8}, sampler={"name": "random"})))
    assert len({a.setting for a in [*first, *second]}) == 8


def test_a_trial_failed_by_hand_is_reported_and_the_worker_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # field case B5
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 2}))
    asked = ledger.ask()
    assert asked is not None
    other = open_study(tmp_path, small_spec(budget={"trials": 2}))
    other.optuna_study.tell(asked.optuna_trial.number, state=TrialState.FAIL)
    assert not ledger.report(asked, 5, Standing(0.5, 0.1, 0.02))
    assert not ledger.tell(asked, outcome_of(asked, StopReason.DONE))
    assert "trial 0 was ended from outside" in caplog.text
    assert [a.trial_number for a in run(ledger)] == [1]


def test_the_best_is_complete_and_feasible(tmp_path: Path) -> None:  # field case B27
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 3}))
    assert ledger.best() is None
    for reason, value, constraint in (
        (StopReason.PRUNED, 0.9, -0.5),
        (StopReason.DONE, 0.95, 0.2),
        (StopReason.KL_LIMIT, 0.7, -0.5),
    ):
        asked = ledger.ask()
        assert asked is not None
        ledger.report(asked, 10, Standing(value, 0.1, 0.02))
        ledger.tell(asked, outcome_of(asked, reason, value, constraint))
    best = ledger.best()
    assert best is not None
    assert (best.trial_number, best.value, best.setting) == (2, 0.7, asked.setting)
    assert ledger.opened.optuna_study.best_trial.number == 2


def test_a_repeat_for_the_noise_floor_runs_once_and_is_never_the_best(tmp_path: Path) -> None:
    search = {"beta": {"log": [1e-3, 1], "zero": True}}
    spec = small_spec(budget={"trials": 4, "noise_seeds": 2}, search=search)
    ledger = ledger_of(tmp_path, spec)
    done: list[Asked] = []
    while (asked := ledger.ask()) is not None:
        value = 0.9 if asked.origin.startswith("noise") else 0.5
        ledger.tell(asked, outcome_of(asked, StopReason.DONE, value))
        done.append(asked)
    assert [a.origin for a in done[:3]] == ["zero", "noise:1", "noise:2"]
    assert [a.setting.seed for a in done] == [0, 1, 2, 0]
    assert [a.is_fixed for a in done] == [True, True, True, False]
    best = ledger.best()
    assert best is not None
    assert best.trial_number in (0, 3)


def test_a_trial_is_not_pruned_for_what_comes_after_its_peak(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 4}, pruning={"peers": 2, "warmup": 0.5})
    ledger = ledger_of(tmp_path, spec)
    one, two, early = (ledger.ask() for _ in range(3))
    for asked, golds in ((one, (0.5, 0.6)), (two, (0.5, 0.6)), (early, (0.9, 0.1))):
        assert asked is not None
        for step, gold in zip((5, 10), golds, strict=True):
            ledger.report(asked, step, Standing(gold, 0.2, 0.02))
    assert early is not None
    assert ledger.judge_peers(early, 10) is None


def test_peers_prune_a_free_trial_after_the_warm_up_but_never_a_fixed_one(tmp_path: Path) -> None:
    spec = small_spec(
        budget={"trials": 6}, baselines=["verl-ppo"], pruning={"peers": 2, "warmup": 0.5}
    )
    ledger = ledger_of(tmp_path, spec)
    fixed, one, two, worst = (ledger.ask() for _ in range(4))
    assert fixed is not None
    assert one is not None
    assert two is not None
    assert worst is not None
    for step in (5, 10):
        for asked, gold in ((one, 0.7), (two, 0.8), (fixed, 0.1), (worst, 0.1)):
            ledger.report(asked, step, Standing(gold, 0.2, 0.02))
    assert ledger.judge_peers(worst, 5) is None
    verdict = ledger.judge_peers(worst, 10)
    assert verdict is not None
    assert verdict.reason is StopReason.PRUNED
    assert ledger.judge_peers(fixed, 10) is None
    assert ledger.judge_peers(one, 10) is None


def test_a_trial_enqueued_by_someone_else_is_run_with_its_parameters(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 2}))
    ledger.opened.optuna_study.enqueue_trial({"beta": 0.25, "controller": "fixed"})
    asked = ledger.ask()
    assert asked is not None
    assert asked.setting.beta == 0.25


def test_every_running_trial_has_a_heartbeat(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, small_spec())
    asked = ledger.ask()
    assert asked is not None
    with ledger.opened.storage.engine.connect() as connection:
        from sqlalchemy import text

        rows = connection.execute(text("SELECT count(*) FROM trial_heartbeats")).scalar()
    assert rows == 1


def test_complete_and_pruned_trials_are_over_running_and_failed_ones_are_not(
    tmp_path: Path,
) -> None:
    ledger = ledger_of(tmp_path, small_spec(budget={"trials": 4, "retries": 1}))
    for reason in (StopReason.DONE, StopReason.PRUNED, StopReason.ERROR):
        asked = ledger.ask()
        assert asked is not None
        ledger.tell(asked, outcome_of(asked, reason))
    assert ledger.ask() is not None
    assert ledger.num_ended() == 2


def with_ended_trials(path: Path, num: int) -> Ledger:
    """A ledger of a study in which ``num`` trials and two are complete; the model has its turn."""
    path.mkdir()
    ledger = ledger_of(path, small_spec(budget={"trials": 500}, pruning={"peers": 1}))
    first = ledger.ask()
    assert first is not None
    ledger.report(first, 10, Standing(0.5, 0.1, 0.02))
    ledger.tell(first, outcome_of(first, StopReason.DONE))
    (kept,) = ledger.opened.optuna_study.get_trials()
    kept.set_user_attr("kltune.origin", "random")
    del kept.user_attrs["kltune.ask"]  # of one ask, there is one attempt
    ledger.opened.optuna_study.add_trials([kept] * (num - 1))
    for _ in range(2):  # the first one reads all trials and takes the search space down
        assert run_a_trial(ledger).origin == "tpe"
    return ledger


def run_a_trial(ledger: Ledger) -> Asked:
    asked = ledger.ask()
    assert asked is not None
    ledger.report(asked, 10, Standing(0.5, 0.2, 0.02))
    ledger.judge_peers(asked, 10)
    ledger.tell(asked, outcome_of(asked, StopReason.DONE))
    return asked


def counts_of_a_trial(ledger: Ledger, patch: pytest.MonkeyPatch) -> dict[str, int]:
    """How much one more trial asks of the storage."""
    counts = {"statements": 0, "trials read": 0, "trials copied": 0}
    storage = optuna.storages.RDBStorage
    build = storage._build_frozen_trial_from_trial_model

    def on_statement(*_args: object) -> None:
        counts["statements"] += 1

    def on_read(self: optuna.storages.RDBStorage, model: Any) -> FrozenTrial:
        counts["trials read"] += 1
        return build(self, model)

    def on_copy(self: FrozenTrial, _memo: object) -> FrozenTrial:
        counts["trials copied"] += 1
        return copy(self)

    event.listen(ledger.opened.storage.engine, "before_cursor_execute", on_statement)
    with patch.context() as patched:
        patched.setattr(storage, "_build_frozen_trial_from_trial_model", on_read)
        patched.setattr(FrozenTrial, "__deepcopy__", on_copy, raising=False)
        run_a_trial(ledger)
    ledger.opened.close()
    return counts


def test_what_a_trial_asks_of_the_storage_does_not_grow_with_the_trials_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = counts_of_a_trial(with_ended_trials(tmp_path / "few", 20), monkeypatch)
    many = counts_of_a_trial(with_ended_trials(tmp_path / "many", 80), monkeypatch)
    assert many == few
    assert few["statements"] > 0
    assert 0 < few["trials read"] < 20
