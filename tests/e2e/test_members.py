"""Many processes on one study: `kltune sweep` and `kltune worker`, killed and not."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from e2e.cli import KITCHEN, command, environment, kltune, sets, strict, wait_for_rows

from kltune.errors import StudyError
from kltune.launch.status_facts import read_standing
from kltune.launch.status_next import member_rows, state_words
from kltune.metrics.jsonl import read_json, read_rows
from kltune.study.crew import members
from kltune.study.lock import move_aside
from kltune.trial.record import read_trials

pytestmark = pytest.mark.slow

STEPS = (
    "evaluate.every=3",
    "evaluate.prompts=8",
    "evaluate.samples=1",
    "trainer.prompts=2",
    "trainer.max_new_tokens=12",
    "pruning.enabled=false",
    "tracking.enabled=false",
    "baselines=[]",
    "budget.workers=1",
)


def flags(study: Path, trials: int, steps: int) -> list[str | Path]:
    return [
        "--study",
        study,
        *sets(*STEPS, f"budget.trials={trials}", f"trainer.steps={steps}"),
    ]


def begin(*args: str | Path) -> subprocess.Popen[str]:
    """A process that is believed dead elsewhere after 4 s, and at once on this machine."""
    return subprocess.Popen(
        command(*args),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), "KLTUNE_LEASE": "2"},
        start_new_session=True,
    )


def ends(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    """What each said on stderr; each must end by itself."""
    said = [process.communicate(timeout=240)[1] for process in processes]
    assert not any("Traceback" in text for text in said), said
    return said


def wait_for_members(study: Path, count: int, processes: Sequence[subprocess.Popen[str]]) -> None:
    for _ in range(2400):
        if len(members(study)) >= count:
            return
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)
    raise AssertionError(f"never {count} members")


def wait_for_trial(study: Path, process: subprocess.Popen[str], rows: int) -> int:
    """The trial that this worker runs and has done ``rows`` steps of; its place in the record is its lease."""
    from kltune.study.storage import reading

    for _ in range(1200):
        assert process.poll() is None, process.communicate()[1]
        if (study / "study.db").exists() and (study / "reference.json").exists():
            with reading(study) as found:
                for trial in found.get_trials(deepcopy=False):
                    lease = trial.user_attrs.get("kltune.lease") or {}
                    number = trial.user_attrs.get("kltune.trial_number")
                    is_its = trial.state.name == "RUNNING" and lease.get("pid") == process.pid
                    if is_its and isinstance(number, int):
                        path = study / "trials" / f"{number:05d}" / "metrics.jsonl"
                        if path.exists() and len(read_rows(path)) >= rows:
                            return number
        time.sleep(0.1)
    raise AssertionError("it never ran a trial")


def endings(study: Path) -> list[list[str]]:
    """For each trial, how its attempts ended."""
    return [
        [str(event["state"]) for event in record.events if event["event"] == "ended"]
        for record in read_trials(study)
    ]


def test_a_sweep_and_two_workers_run_exactly_the_trials_of_the_budget(tmp_path: Path) -> None:
    study = tmp_path / "S"
    lead = begin("sweep", KITCHEN, *flags(study, 8, 80))
    wait_for_rows(study / "trials" / "00000" / "metrics.jsonl", 1, lead)
    scale = (study / "reference.json").stat().st_mtime_ns
    workers = [
        begin("worker", study),
        begin("worker", KITCHEN, *flags(study, 8, 80)),
    ]
    wait_for_members(study, 3, [lead, *workers])
    assert state_words(read_standing(study)).startswith("running (sweep + 2 workers; process ")
    with pytest.raises(StudyError, match=r"process \d+, 2 workers\); .*kltune worker"):
        move_aside(study)  # as --fresh does
    refused = kltune("sweep", KITCHEN, *flags(study, 8, 80))
    assert refused.returncode == 2
    assert "another kltune is working in" in refused.stderr
    assert "work with it by `kltune worker" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    said = ends([lead, *workers])
    assert [p.returncode for p in (lead, *workers)] == [0, 0, 0], said
    assert endings(study) == [["complete"]] * 8
    assert (study / "reference.json").stat().st_mtime_ns == scale
    assert read_json(study / "report.json")["num_trials"] == 8
    assert not (study / "workers").exists()
    assert all(" ended " in text and "beside sweep" in text for text in said[1:])


@pytest.mark.long  # eight members do, by hand, in tests/study/test_many_members.py; two here
def test_four_workers_that_start_at_once_make_one_study_and_end_it(tmp_path: Path) -> None:
    study = tmp_path / "S"
    four = [begin("worker", KITCHEN, *flags(study, 5, 6)) for _ in range(4)]
    said = ends(four)
    assert [process.returncode for process in four] == [0] * 4, said
    assert sum("it sets the study up" in text for text in said) == 1
    assert sum("sigma_R" in text for text in said) == 1
    assert endings(study) == [["complete"]] * 5
    assert read_json(study / "report.json")["num_trials"] == 5
    again = kltune("worker", study, "--json")
    assert again.returncode == 0, again.stderr
    assert "the study is settled" in again.stderr
    assert strict(again.stdout)["num_trials"] == 5


def test_a_trial_of_a_killed_worker_goes_on_in_another_and_a_killed_sweep_is_missed_by_nobody(
    tmp_path: Path,
) -> None:
    study = tmp_path / "S"
    lead = begin("sweep", KITCHEN, *flags(study, 4, 60))
    wait_for_rows(study / "trials" / "00000" / "metrics.jsonl", 1, lead)
    first, second = begin("worker", study), begin("worker", study)
    lost = wait_for_trial(study, first, 5)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert "died: worker" in member_rows(read_standing(study))[0]
    of_lead = wait_for_trial(study, lead, 5)
    os.kill(lead.pid, signal.SIGKILL)
    lead.communicate()
    (said,) = ends([second])
    assert second.returncode == 0, said
    records = {record.number: record for record in read_trials(study)}
    assert len(records) == 4
    for number in (lost, of_lead):
        assert records[number].attempt == 2
        assert [event["event"] for event in records[number].events].count("resumed") == 1
    assert all(states[-1] == "complete" for states in endings(study))
    assert read_json(study / "report.json")["num_trials"] == 4
    assert not (study / "workers").exists()  # nobody is named dead any more


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_worker_that_is_stopped_saves_its_trial_and_the_same_command_goes_on(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    study = tmp_path / "S"
    args = ("worker", KITCHEN, *flags(study, 1, 20))
    worker = begin(*args)
    wait_for_rows(study / "trials" / "00000" / "metrics.jsonl", 5, worker)
    os.kill(worker.pid, number)
    (said,) = ends([worker])
    assert worker.returncode == code, said
    assert "the same command goes on from here" in said
    assert not (study / "workers").exists()
    again = kltune(*args)
    assert again.returncode == 0, again.stderr
    assert "goes on from step" in again.stderr
    assert endings(study) == [["interrupted", "complete"]]
    assert (study / "report.html").is_file()
