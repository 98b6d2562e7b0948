from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from kltune.confirm.result import FILE, FOLDER
from kltune.launch.status_facts import read_standing
from kltune.launch.status_next import (
    UNAWARE,
    crew_words,
    member_rows,
    next_command,
    report_age,
    report_words,
    state_word,
    state_words,
)
from kltune.metrics.jsonl import write_json
from kltune.study.holder import Holder
from tests.confirm_case import judged, result_of
from tests.members_case import member_process
from tests.standing_case import NOW, held_by_another_process, write_study, write_trial

HELD = Holder("held", 7, "kltune sweep", NOW - 100)


def finished(study: Path) -> Path:
    write_study(study)
    for number in range(4):
        write_trial(study, number, ending={})
    return study


def test_each_state_has_its_word(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    clock = lambda: NOW + 3600.0  # noqa: E731
    assert state_word(read_standing(study, clock)) == "not started"
    write_trial(study, 0)
    stopped = read_standing(study, clock)
    assert state_word(stopped) == "stopped"
    assert state_word(replace(stopped, holder=HELD)) == "running"
    elsewhere = read_standing(study, lambda: NOW)
    assert state_word(elsewhere) == "stopped?"
    assert state_words(elsewhere) == "stopped this minute, or running on another machine"
    # If it does run there, its lock refuses a second sweep.
    assert next_command(elsewhere).startswith("kltune sweep ")
    other = replace(read_standing(study, lambda: NOW), holder=Holder("unknown", 7))
    assert state_word(other) == "running"
    assert state_word(read_standing(finished(tmp_path / "b"), clock)) == "finished"


def test_a_stopped_sweep_goes_on_by_its_own_command(tmp_path: Path) -> None:
    study = write_study(tmp_path / "my study")
    write_trial(study, 0)
    assert next_command(read_standing(study)).startswith("kltune sweep '")
    command = ["kltune", "sweep", "a b.yaml", "--fresh", "--trials", "4"]
    write_json(study / "env.json", {"command": command})
    assert next_command(read_standing(study)) == "kltune sweep 'a b.yaml' --trials 4"


def test_after_the_search_one_step_leads_to_the_next(tmp_path: Path) -> None:
    study = finished(tmp_path)
    steps: list[str] = []
    for made in ("report.html", "confirm/confirm.json", "validate.json", "last"):
        steps.append(next_command(read_standing(study)).split()[1])
        (study / made).parent.mkdir(exist_ok=True)
        (study / made).write_text("{}", encoding="utf-8")
    assert steps == ["report", "confirm", "validate", "export"]
    assert next_command(replace(read_standing(study), holder=HELD)).startswith("kltune ui ")


def confirmed_of(study: Path, number: int) -> Path:
    """A confirmation of that trial on the record."""
    result = result_of(judged([1.0, 0.9, 0.5, 0.0]))
    arms = (replace(result.arms[0], number=number), *result.arms[1:])
    write_json(study / FOLDER / FILE, replace(result, arms=arms).as_json())
    return study / FOLDER / FILE


def test_a_report_that_does_not_know_of_the_confirmation_says_so_and_is_made_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished(tmp_path))
    for name in ("report.html", "report.json"):
        write_json(tmp_path / name, {"best": {"number": 3}})
        os.utime(tmp_path / name, (NOW, NOW))
    of = confirmed_of(tmp_path, 3)
    os.utime(of, (NOW + 60, NOW + 60))
    standing = read_standing(tmp_path)
    assert report_age(standing) == UNAWARE
    assert f"report.html ({UNAWARE}): recommends trial 3" in report_words(standing)
    assert next_command(standing).startswith("kltune report ")
    os.utime(tmp_path / "report.html", (NOW + 61, NOW + 61))
    assert report_age(standing) == ""
    assert next_command(standing).startswith("kltune validate ")


def test_a_confirmation_of_what_is_not_recommended_any_more_is_made_again(tmp_path: Path) -> None:
    study = finished(tmp_path)
    confirmed_of(study, 2)
    for name in ("report.html", "report.json"):
        write_json(study / name, {"best": {"number": 3}})
        os.utime(study / name, (NOW, NOW))
    assert next_command(read_standing(study)).startswith("kltune confirm ")
    write_json(study / "report.json", {"best": {"number": 2}})
    os.utime(study / "report.json", (NOW, NOW))
    assert next_command(read_standing(study)).startswith("kltune validate ")


def test_without_a_feasible_trial_the_report_says_what_to_change(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    for number in range(4):
        write_trial(study, number, ending={"feasible": False})
    (study / "report.html").write_text("", encoding="utf-8")
    assert next_command(read_standing(study)).startswith("kltune report ")


def test_the_report_is_named_with_what_it_recommends_and_whether_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = finished(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert report_words(read_standing(study)) == "none yet"
    page = study / "report.html"
    page.write_text("", encoding="utf-8")
    os.utime(page, (NOW, NOW))
    assert report_words(read_standing(study)) == "report.html"
    write_json(study / "report.json", {"best": {"number": 3}})
    assert "recommends trial 3" in report_words(read_standing(study))
    write_json(study / "report.json", {"best": None})
    os.utime(page, (NOW - 60, NOW - 60))
    assert report_words(read_standing(study)) == "report.html (older than the latest rows)"


def test_a_sweep_that_was_killed_here_is_told_at_once(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    write_trial(study, 0)
    with held_by_another_process(study) as pid:
        assert state_word(read_standing(study, lambda: NOW)) == "running"
        os.kill(pid, signal.SIGKILL)
    killed = read_standing(study, lambda: NOW)
    assert state_word(killed) == "killed"
    assert state_words(killed) == f"killed (process {pid} is gone)"
    assert next_command(killed).startswith("kltune sweep ")


def test_a_finished_study_is_finished_although_its_process_is_gone(tmp_path: Path) -> None:
    study = finished(tmp_path)
    with held_by_another_process(study):
        pass
    assert state_word(read_standing(study, lambda: NOW)) == "finished"


def test_members_of_a_search_are_counted_and_the_dead_are_named(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    with member_process(study, "sweep") as lead, member_process(study) as one:
        standing = read_standing(study)
        assert state_words(standing) == f"running (sweep + 1 worker; process {lead.pid})"
        assert crew_words(standing) == "running (sweep + 1 worker)"
        assert member_rows(standing) == []
        one.kill()
        one.wait()
        standing = read_standing(study)
        assert state_words(standing) == f"running (kltune sweep, process {lead.pid})"
        assert crew_words(standing) == "running, 1 died"
        (said,) = member_rows(standing)
        assert said.startswith("died: worker ")
        assert f"(process {one.pid})" in said
