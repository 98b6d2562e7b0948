from __future__ import annotations

import os
from pathlib import Path

import fake_study
import pytest

from kltune.launch import replay_threads as threads_of_replay
from kltune.launch.replay import ReplayPlan, ReplayRequest, plan_replay
from kltune.launch.replay_threads import replay_threads
from kltune.launch.threads import allowed_threads
from kltune.metrics.jsonl import write_json


@pytest.fixture
def plan(tmp_path: Path) -> ReplayPlan:
    study = fake_study.write_study(tmp_path / "s", [fake_study.trial(0.1, steps=2)])
    return plan_replay(ReplayRequest(study, 0))


def place(plan: ReplayPlan, **changes: object) -> None:
    facts = {"workers": 2, "slots": 2, "threads": 1, "device": "cpu", **changes}
    write_json(plan.request.study_path / "placement.json", facts)


def test_the_records_own_number_is_taken(plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_of_replay, "allowed_threads", lambda: 2)
    place(plan)
    assert replay_threads(plan) == (1, [])


def test_an_unknown_number_is_said(plan: ReplayPlan) -> None:
    threads, (note,) = replay_threads(plan)
    assert threads == allowed_threads()
    assert "is not known" in note


def test_more_threads_than_cores_are_not_taken_and_that_is_said(plan: ReplayPlan) -> None:
    place(plan, threads=4096)
    threads, (note,) = replay_threads(plan)
    assert threads == allowed_threads()
    assert f"with 4096 threads, this machine has {len(os.sched_getaffinity(0))} cores" in note


def test_trials_that_shared_a_batch_are_said(plan: ReplayPlan) -> None:
    place(plan, workers=1, slots=4)
    _, (note,) = replay_threads(plan)
    assert "4 trials at once in 1 process" in note
    place(plan, device="cuda")
    _, (note,) = replay_threads(plan)
    assert "in 2 processes" in note


def test_an_older_record_trained_with_the_threads_of_its_main_process(plan: ReplayPlan) -> None:
    env = {"device": {"device": "cpu", "threads": "1"}}
    write_json(plan.request.study_path / "env.json", env)
    assert replay_threads(plan) == (1, [])
