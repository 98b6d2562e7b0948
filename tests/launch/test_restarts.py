"""When a worker that died is started again, and which deaths are not its own."""

from __future__ import annotations

from kltune.launch.restarts import RESTARTS, Restarts
from kltune.study.lives import MOST_LOST


def test_deaths_with_different_trials_are_the_workers_own() -> None:
    restarts = Restarts()
    for trial in range(RESTARTS):
        assert restarts.note(1, [trial])
        assert restarts.may_restart(1)
    assert restarts.note(1, [9])
    assert not restarts.may_restart(1)
    assert restarts.may_restart(0)


def test_one_trial_counts_once_and_not_at_all_once_it_is_to_blame() -> None:
    restarts = Restarts()
    assert [restarts.note(worker, [7]) for worker in (0, 1, 1)] == [True, True, False]
    assert (restarts.used(0), restarts.used(1)) == (0, 0)


def test_deaths_with_several_trials_or_none_are_the_workers_own() -> None:
    restarts = Restarts()
    for trials in ([3, 4], [], [3, 4]):
        assert restarts.note(0, trials)
    assert not restarts.may_restart(0)


def test_who_admits_a_deadly_trial_for_ever_comes_to_an_end() -> None:
    restarts = Restarts()
    for _ in range(MOST_LOST + RESTARTS):
        restarts.note(0, [7])
        assert restarts.may_restart(0)
    restarts.note(0, [7])
    assert not restarts.may_restart(0)
