"""A trial whose worker is gone, or seems to be: who ends it, when, and what the one that comes back may still do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from optuna.trial import TrialState

from kltune.metrics.jsonl import read_json, read_rows, write_json
from kltune.spec.study import StudySpec
from kltune.study.crew import join
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.space import fixed_trials
from kltune.study.storage import open_study
from kltune.trial.record import read_trial
from tests.fake_bank import FakeBank, small_spec
from tests.small_search import SCALE


class Members:
    """Members of one study, in one process, on one clock that the test moves."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self.folder = folder
        self.now = 0.0
        self._held = held

    def ledger(self, spec: StudySpec) -> Ledger:
        member = self._held.enter_context(join(self.folder, "worker"))
        opened = open_study(self.folder, spec)
        self._held.callback(opened.close)
        ledger = Ledger(opened, fixed_trials(spec, SCALE), member, clock=lambda: self.now)
        ledger.recover()
        return ledger

    def watch(self, ledger: Ledger, seconds: float, *others: Ledger) -> None:
        """Time passes; ``ledger`` looks, and ``others`` give signs of life."""
        for _ in range(int(seconds / 30)):
            for other in others:
                other.lease.renew()
            self.now += 30
            ledger.lease.renew()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with ExitStack() as held:
        yield Members(tmp_path, held)


def test_a_member_that_gives_signs_keeps_its_trial_however_long_it_takes(members: Members) -> None:
    spec = small_spec(budget={"trials": 2})
    one, other = members.ledger(spec), members.ledger(spec)
    assert one.ask() is not None
    members.watch(other, 600, one)
    asked = other.ask()
    assert asked is not None
    assert asked.trial_number == 1
    assert other.ask() is None
    assert not other.is_settled()


def test_a_member_that_gives_no_sign_for_two_leases_loses_its_trial(members: Members) -> None:
    spec = small_spec(budget={"trials": 1})
    one, other = members.ledger(spec), members.ledger(spec)
    lost = one.ask()
    assert lost is not None
    members.watch(other, 120)
    assert other.ask() is None  # the first look only showed which sign there was
    members.watch(other, 30)
    again = other.ask()
    assert again is not None
    assert (again.trial_number, again.attempt, again.setting) == (0, 2, lost.setting)
    assert one.is_taken_over(lost)
    assert not one.is_ours(lost)
    assert other.is_ours(again)


def test_a_watcher_that_was_stopped_itself_has_watched_nothing_meanwhile(members: Members) -> None:
    spec = small_spec(budget={"trials": 1})
    one, other = members.ledger(spec), members.ledger(spec)
    assert one.ask() is not None
    members.watch(other, 30)
    members.now += 9999  # the whole machine was asleep
    other.lease.renew()
    assert other.ask() is None
    one.lease.renew()  # the other one wakes up, too
    members.watch(other, 90)
    assert other.ask() is None


def test_a_member_that_has_left_loses_its_trial_at_once(tmp_path: Path, members: Members) -> None:
    spec = small_spec(budget={"trials": 1})
    with join(tmp_path, "worker") as gone:
        opened = open_study(tmp_path, spec)
        left = Ledger(opened, (), gone)
        other = members.ledger(spec)
        assert left.ask() is not None
        assert other.ask() is None
        opened.close()
    again = other.ask()
    assert again is not None
    assert again.attempt == 2


def test_a_trial_that_was_taken_over_is_left_alone_by_whoever_comes_back(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:  # field case B5
    spec = small_spec(budget={"trials": 2})
    late, other = members.ledger(spec), members.ledger(spec)
    checkpoint = members.folder / "trials/00000/checkpoints/last/slot.json"

    def on_step(number: int, step: int) -> None:
        if number == 0 and step == 9:  # stopped here, for minutes
            members.watch(other, 150)
            again = other.ask()
            assert again is not None
            assert again.resume_from == checkpoint.parent
            assert (again.trial_number, again.attempt) == (0, 2)
            write_json(checkpoint, {"newer": True})

    bank = FakeBank(1, on_step=on_step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late, "is_settled", lambda: True)  # nobody runs the newer attempt here
        end = run_search(bank, late, SCALE.sigma)
    assert read_json(checkpoint)["newer"]
    assert bank.steps_done == {0: 10, 1: 20}  # it noticed when it was to save
    assert end.trials_ended == 1
    record = read_trial(members.folder / "trials/00000")
    ends = [(e["attempt"], e["reason"]) for e in record.events if e["event"] == "ended"]
    assert ends == [(1, "interrupted")]
    assert caplog.text.count("another worker took it over") == 1
    states = [t.state for t in other.opened.optuna_study.get_trials()]
    assert states == [TrialState.FAIL, TrialState.RUNNING, TrialState.COMPLETE]


def test_a_late_member_notices_by_its_lease_before_it_has_anything_to_save(
    members: Members,
) -> None:
    spec = small_spec(budget={"trials": 1})
    late, other = members.ledger(spec), members.ledger(spec)

    def on_step(number: int, step: int) -> None:
        if step == 6:
            members.watch(other, 150)
            assert other.ask() is not None
            late.lease.renew()  # its thread wakes up with it

    bank = FakeBank(1, on_step=on_step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late, "is_settled", lambda: True)
        run_search(bank, late, SCALE.sigma)
    assert bank.steps_done == {0: 6}


def test_the_end_of_a_dead_attempt_is_in_its_record_once(members: Members) -> None:
    spec = small_spec(budget={"trials": 1})
    one, other = members.ledger(spec), members.ledger(spec)
    asked = one.ask()
    assert asked is not None
    folder = members.folder / "trials/00000"
    rows = [{"trial": 0, "attempt": 1, "step": step} for step in (1, 2, 3)]
    for row in rows:
        from kltune.metrics.jsonl import append_rows

        append_rows(folder / "metrics.jsonl", [row])
    members.watch(other, 150)
    assert other.ask() is not None
    third = members.ledger(spec)
    third.recover()
    (event,) = read_rows(folder / "events.jsonl")
    assert (event["event"], event["reason"], event["steps_run"]) == ("ended", "interrupted", 3)
    assert event["detail"].startswith("its worker ")
    assert event["detail"].endswith(" died")


def died(members: Members, spec: StudySpec, steps: int) -> Ledger:
    """A member asks, its trial gets to ``steps``, and it is seen dead by another, which is returned."""
    from kltune.metrics.jsonl import append_rows

    with join(members.folder, "worker") as member:
        opened = open_study(members.folder, spec)
        ledger = Ledger(opened, (), member)
        asked = ledger.ask()
        assert asked is not None
        row = {"trial": 0, "attempt": asked.attempt, "step": steps}
        append_rows(members.folder / "trials/00000/metrics.jsonl", [row])
        opened.close()
    return ledger


def test_a_trial_in_which_workers_die_again_and_again_at_one_place_is_given_up(
    members: Members,
) -> None:
    spec = small_spec(budget={"trials": 1})
    other = members.ledger(spec)
    for _ in range(3):
        died(members, spec, steps=7)
    assert other.ask() is None
    last = other.opened.optuna_study.get_trials()[-1]
    assert last.user_attrs["kltune.stop_reason"] == "error"
    assert last.user_attrs["kltune.stop_detail"].startswith("its worker process died 3 times: ")


def test_a_trial_that_gets_further_each_time_is_not_blamed(members: Members) -> None:
    spec = small_spec(budget={"trials": 1})
    other = members.ledger(spec)
    for steps in (2, 4, 6, 8, 10, 12):
        died(members, spec, steps)
    asked = other.ask()
    assert asked is not None
    assert (asked.trial_number, asked.attempt) == (0, 7)


def test_what_the_session_gave_up_is_tried_again_by_the_first_member_of_the_next(
    tmp_path: Path, members: Members
) -> None:
    spec = small_spec(budget={"trials": 1, "retries": 0})
    with ExitStack() as session:
        earlier = Members(tmp_path, session)
        one = earlier.ledger(spec)
        bank = FakeBank(1, gold_of=lambda setting, step: float("nan"))
        run_search(bank, one, SCALE.sigma)
        second = earlier.ledger(spec)  # comes while the first one is still there
        assert second.ask() is None
    third = members.ledger(spec)
    asked = third.ask()
    assert asked is not None
    assert (asked.trial_number, asked.attempt) == (0, 2)


def test_two_members_never_hold_more_trials_than_the_budget(members: Members) -> None:
    spec = small_spec(budget={"trials": 5})
    one, other = members.ledger(spec), members.ledger(spec)
    asked = [ledger.ask() for _ in range(4) for ledger in (one, other)]
    numbers = [a.trial_number for a in asked if a is not None]
    assert numbers == list(range(5))
    assert not one.is_due()
    assert not one.is_settled()
