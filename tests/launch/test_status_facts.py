from __future__ import annotations

import os
from pathlib import Path

import pytest

from kltune.errors import KltuneError, StudyError
from kltune.launch.status_facts import last_row, read_standing, size_of
from kltune.metrics.jsonl import append_rows, write_json
from kltune.report.rows import read_study
from kltune.trial.outcome import TrialState
from tests.fake_study import typical_trials
from tests.fake_study import write_study as write_fake
from tests.standing_case import NOW, held_by_another_process, write_study, write_trial


def snapshot(folder: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")
    )


def test_a_study_stands_as_its_full_record_says(tmp_path: Path) -> None:
    write_fake(tmp_path, typical_trials())
    standing, full = read_standing(tmp_path), read_study(tmp_path)
    assert [(t.number, t.state, t.step, t.origin) for t in standing.trials] == [
        (row.number, row.state, row.steps_run, row.origin) for row in full.trials
    ]
    candidates = [row for row in full.trials if row.is_candidate]
    best = max(candidates, key=lambda row: row.value or 0)
    assert standing.best is not None
    assert (standing.best.number, standing.best.value) == (best.number, best.value)
    assert best.peak is not None
    assert standing.best.evaluation["eval/kl_seq"] == best.peak.kl_seq


def test_looking_changes_nothing(tmp_path: Path) -> None:
    write_trial(write_study(tmp_path), 0)
    before = snapshot(tmp_path)
    read_standing(tmp_path)
    assert snapshot(tmp_path) == before


def test_a_running_study_can_be_looked_at(tmp_path: Path) -> None:
    write_trial(write_study(tmp_path), 0, ending={}, started=1e9, last=1e9)
    with held_by_another_process(tmp_path) as pid:
        since = (tmp_path / ".lock").stat().st_mtime
        write_trial(tmp_path, 1, step=30, started=since + 1, last=since + 5)
        standing = read_standing(tmp_path, lambda: since + 9)
        assert (standing.is_running, standing.holder.pid) == (True, pid)
    assert [trial.number for trial in standing.open] == [1]
    # Trial 0 is of an earlier session: only what this one did counts.
    assert [trial.worked for trial in standing.trials] == [0, 30]
    assert standing.last == since + 5
    assert standing.open[0].row["kl/exact_seq"] == 2.4


def test_an_attempt_that_goes_on_counts_from_where_it_began(tmp_path: Path) -> None:
    write_study(tmp_path)
    with held_by_another_process(tmp_path):
        since = (tmp_path / ".lock").stat().st_mtime
        folder = write_trial(tmp_path, 0, step=30, started=since - 500, last=since + 5)
        row = {"trial": 0, "attempt": 2, "step": 20, "time": since + 1, "event": "resumed"}
        append_rows(folder / "events.jsonl", [row])
        assert read_standing(tmp_path).trials[0].worked == 10


def test_infeasible_and_noise_trials_are_never_the_best(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    write_trial(study, 0, gold=0.9, ending={"feasible": False})
    write_trial(study, 1, gold=0.8, ending={}, origin="noise:3")
    write_trial(study, 2, gold=0.7, ending={"state": "pruned", "reason": "pruned", "value": None})
    assert read_standing(study).best is None
    write_trial(study, 3, gold=0.1, ending={})
    best = read_standing(study).best
    assert best is not None
    assert best.number == 3


def test_a_trial_that_can_not_be_read_is_named_and_the_rest_is_told(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    write_trial(study, 0, ending={})
    for number, text in ((1, "{"), (2, "[]"), (3, '{"trial": 3}')):
        folder = study / f"trials/{number:05d}"
        folder.mkdir()
        (folder / "config.json").write_text(text, encoding="utf-8")
    folder = write_trial(study, 4)
    append_rows(folder / "events.jsonl", [{"trial": 4, "attempt": 1, "event": "ended"}])
    standing = read_standing(study)
    assert [trial.number for trial in standing.trials] == [0]
    assert len(standing.broken) == 4
    assert all(f"{number:05d}" in text for number, text in enumerate(standing.broken, 1))


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such study folder"):
        read_standing(tmp_path / "absent")
    with pytest.raises(StudyError, match=r"no resolved\.json"):
        read_standing(tmp_path)
    write_json(tmp_path / "resolved.json", {"name": "x"})
    with pytest.raises(KltuneError):
        read_standing(tmp_path)


def test_a_sweep_that_only_just_began_is_running_without_a_spec(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path):
        standing = read_standing(tmp_path)
    assert (standing.spec, standing.is_running, standing.trials) == (None, True, ())


def test_the_last_row_is_the_last_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert last_row(path) == {}
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "x', encoding="utf-8")
    assert last_row(path) == {"step": 2}
    path.write_text('{"step": 1}\n' + "x" * 300_000, encoding="utf-8")
    assert last_row(path) == {}


def test_the_size_is_of_the_files_alone_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a").write_bytes(b"x" * 1000)
    (tmp_path / "big").write_bytes(b"x" * 10**6)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "big")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    links = sum(os.lstat(tmp_path / "in" / name).st_size for name in ("link",))
    assert 1000 <= size_of(tmp_path / "in") <= 1000 + links


def test_a_study_is_finished_once_the_same_command_would_do_nothing(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    for number in range(3):
        write_trial(study, number, ending={})
    assert not read_standing(study).is_finished
    last = write_trial(study, 3, step=40)
    assert not read_standing(study).is_finished
    event = {"event": "ended", "reason": "interrupted", "detail": "", "state": "interrupted"}
    facts = {"steps_run": 40, "value": None, "feasible": None, "best_step": None}
    row = {"trial": 3, "attempt": 1, "step": 40, "time": NOW, **event, **facts}
    append_rows(last / "events.jsonl", [row])
    assert not read_standing(study).is_finished
    append_rows(last / "events.jsonl", [{**row, "state": "failed", "reason": "error"}])
    standing = read_standing(study)
    assert standing.is_finished
    assert standing.counts[TrialState.FAILED] == 1
