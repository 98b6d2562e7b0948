"""Many processes on one study: one sends the trials of all, and another one takes over when it is gone."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tracker_case import Bench, create_all

from kltune.metrics.mlflow import Store
from kltune.metrics.tracker import Tracker

# MLflow's own use of SQLAlchemy, not ours.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    Store.open(Tracker(f"sqlite:///{path}", None, is_own=False))
    return Bench(path)


MEMBER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tracker_case import Trial
from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.tracker import resolve_tracker

study, number = Path(sys.argv[1]), int(sys.argv[2])
mirror = MlflowMirror(study, resolve_tracker(study, None, {}), "kitchen", [], lambda: True)
mirror.poll_s = 0.2
mirror.start()
trial = Trial(study, number)
trial.config()
mirror.notice(trial.folder)
print("going", flush=True)
sys.stdin.readline()
trial.steps(1, 1, 10)
trial.end(1, "complete", "done", "all 10 steps", value=number / 10)
mirror.notice(trial.folder)
is_last = sys.argv[4] == "last"
assert mirror.close("FINISHED", timeout_s=90, is_last=is_last), "not all was sent"
print("mlflow" in sys.modules, flush=True)
"""


def _member(study: Path, number: int, place: str = "one") -> subprocess.Popen[str]:
    tests = str(Path(__file__).parents[1])
    member = subprocess.Popen(
        [sys.executable, "-c", MEMBER, str(study), str(number), tests, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert member.stdout is not None
    assert member.stdout.readline() == "going\n"
    return member


def _leave(member: subprocess.Popen[str]) -> str:
    out, errors = member.communicate("\n", timeout=120)
    assert (member.returncode, errors) == (0, "")
    return out.strip()


def _holder(bench: Bench, study: Path) -> Any:
    """One that sends, in this process."""
    mirror = bench.mirror(study)
    mirror.poll_s = 0.2
    mirror.start()
    bench.wait(lambda: mirror._connection.runs is not None)
    return mirror


def test_one_sends_the_trials_of_all_and_the_others_do_not_even_import_mlflow(
    bench: Bench, tmp_path: Path
) -> None:
    study = bench.study(tmp_path / "kitchen")
    mirror = _holder(bench, study)
    members = [_member(study, number) for number in (1, 2, 3)]
    bench.wait(lambda: len(bench.runs(study)[1]) == 3)
    assert {run.info.status for run in bench.runs(study)[1].values()} == {"RUNNING"}
    assert [_leave(member) for member in members] == ["False"] * 3
    assert bench.runs(study)[0].info.status == "RUNNING"  # one is still there
    assert mirror.close("FINISHED")
    parent, children = bench.runs(study)
    assert parent.info.status == "FINISHED"
    assert {run.info.status for run in children.values()} == {"FINISHED"}
    client = bench.client(study)
    for run in children.values():
        history = client.get_metric_history(run.info.run_id, "ctrl/beta")
        assert [metric.step for metric in history] == list(range(1, 11))
    ended = client.get_metric_history(parent.info.run_id, "study/trials_ended")
    assert [(m.step, m.value) for m in ended] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert parent.data.metrics["study/best_value"] == 0.3


def test_another_one_takes_over_from_one_that_was_killed(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = bench.study(tmp_path / "kitchen")
    first = _member(study, 1)
    bench.wait(lambda: _num_children(bench, study) == 1, 60)
    second = _member(study, 2, "last")
    bench.wait(lambda: _num_children(bench, study) == 2)  # sent by the first
    first.kill()
    first.communicate()
    assert _leave(second) == "True"
    parent, children = bench.runs(study)  # one parent, one child a trial
    assert parent.info.status == "FINISHED"
    assert children[2].info.status == "FINISHED"
    # Nobody is left to run it.
    assert children[1].info.status == "KILLED"
    assert "its process died" in children[1].data.tags["kltune.stop_detail"]


def _num_children(bench: Bench, study: Path) -> int:
    if bench.client(study).get_experiment_by_name("kitchen") is None:
        return 0
    try:
        return len(bench.runs(study)[1])
    except AssertionError:  # the parent is on its way
        return 0


def test_a_trial_of_another_one_that_lives_is_not_taken_for_dead(
    bench: Bench, tmp_path: Path
) -> None:
    study = bench.study(tmp_path / "kitchen")
    trial = bench.Trial(study, 1)
    trial.config()
    others = [True]
    mirror = bench.mirror(study)
    mirror._has_others = lambda: others[0]
    mirror.start()
    bench.wait(lambda: _num_children(bench, study) == 1)
    time.sleep(0.3)
    assert bench.runs(study)[1][1].info.status == "RUNNING"
    # Its process dies, and the ledger says so: that is what ends the run.
    trial.end(1, "interrupted", "interrupted", "its worker died")
    mirror.notice(trial.folder)
    bench.wait(lambda: bench.runs(study)[1][1].info.status == "KILLED")
    assert mirror.close("KILLED", is_last=False)
    assert bench.runs(study)[0].info.status == "RUNNING"


def test_the_last_to_leave_waits_for_one_that_is_still_sending(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = bench.study(tmp_path / "kitchen")
    first = _holder(bench, study)
    second = bench.mirror(study)
    with caplog.at_level(logging.INFO):
        second.start()
        assert first.close("FINISHED", is_last=False)
        assert bench.runs(study)[0].info.status == "RUNNING"
        assert second.close("FINISHED", is_last=True)
    assert bench.runs(study)[0].info.status == "FINISHED"
    # MLflow's own words of its system metrics come or don't, by whatever ran before.
    assert [r for r in caplog.records if r.name.startswith("kltune")] == []


def test_eight_processes_may_start_at_once_on_one_fresh_study(tmp_path: Path) -> None:
    assert create_all(tmp_path, "", "abcdefgh", is_one_study=True) == [0] * 8
    from mlflow.tracking.client import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'all' / 'mlflow.db'}")
    assert [e.name for e in client.search_experiments()] == ["shared", "Default"]
    (run,) = client.search_runs([client.get_experiment_by_name("shared").experiment_id])
    assert run.info.status == "FINISHED"
    assert client.search_runs(["0"]) == []


def test_eight_studies_may_start_at_once_on_one_fresh_database(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'shared.db'}"
    assert create_all(tmp_path, uri, "abcdefgh", is_one_study=False) == [0] * 8
    from mlflow.tracking.client import MlflowClient

    client = MlflowClient(uri)
    assert [e.name for e in client.search_experiments()] == ["shared", "Default"]
    experiment = client.get_experiment_by_name("shared").experiment_id
    assert [run.info.status for run in client.search_runs([experiment])] == ["FINISHED"] * 8
    assert client.search_runs(["0"]) == []
    for name in "abcdefgh":
        shutil.rmtree(tmp_path / name)
