from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
import warnings
from contextlib import closing
from multiprocessing.synchronize import Event
from pathlib import Path

import optuna
import pytest

from kltune.errors import StudyError
from kltune.spec.study import StudySpec
from kltune.study.place import UNFINISHED
from kltune.study.space import suggest
from kltune.study.storage import (
    DATABASE,
    OPTUNA_SCHEMA,
    check_study,
    digest,
    load_study,
    open_study,
    reading,
    storage_to_read,
)
from tests.fake_bank import small_spec


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_study_is_created_once_and_then_gone_on_with(tmp_path: Path) -> None:
    first = open_study(tmp_path, small_spec())
    first.optuna_study.enqueue_trial({"beta": 0.1})
    again = open_study(tmp_path, small_spec())
    assert (first.num_before, again.num_before) == (0, 1)
    assert again.optuna_study.study_name == "small"
    assert again.optuna_study.user_attrs["kltune.spec_digest"] == digest(small_spec())
    assert load_study(tmp_path).direction is optuna.study.StudyDirection.MAXIMIZE


def test_our_note_of_optunas_table_revision_is_right(tmp_path: Path) -> None:
    assert open_study(tmp_path, small_spec()).storage.get_head_version() == OPTUNA_SCHEMA


@pytest.mark.parametrize("name", ["with space", "é-ü", "a{b}c", "50%", "#1"])
def test_a_folder_may_be_called_anything_reasonable(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    open_study(tmp_path / name, small_spec())
    assert (tmp_path / name / DATABASE).exists()
    assert open_study(tmp_path / name, small_spec()).optuna_study.study_name == "small"


def test_changed_choices_are_refused_naming_old_and_new_and_nothing_is_written(
    tmp_path: Path,
) -> None:  # field case B14
    def spec(*penalties: str) -> StudySpec:
        return small_spec(
            search={"beta": {"log": [0.01, 1]}, "penalty": {"choice": list(penalties)}}
        )

    open_study(tmp_path, spec("k1-reward", "k3-loss"))
    before = file_hash(tmp_path / DATABASE)
    for look in (open_study, check_study):
        with pytest.raises(StudyError) as refused:
            look(tmp_path, spec("k1-reward", "k2-loss", "k3-loss"))
        assert (
            'search.penalty.choice: ["k1-reward", "k3-loss"] in the study, '
            '["k1-reward", "k2-loss", "k3-loss"] now' in str(refused.value)
        )
        assert refused.value.exit_code == 2
    assert file_hash(tmp_path / DATABASE) == before


def test_every_difference_is_named_at_once(tmp_path: Path) -> None:
    open_study(tmp_path, small_spec())
    with pytest.raises(StudyError) as refused:
        open_study(tmp_path, small_spec(trainer={"steps": 30}, seed=7, objective={"kl_limit": 0.5}))
    text = str(refused.value)
    assert "3 difference(s)" in text
    assert "trainer.steps: 20 in the study, 30 now" in text
    assert "seed: 0 in the study, 7 now" in text
    assert "objective.kl_limit: not given in the study, 0.5 now" in text


def test_budget_wall_tracking_and_pruning_may_change(tmp_path: Path) -> None:
    open_study(tmp_path, small_spec())
    changed = small_spec(
        budget={"trials": 99, "slots": 4, "retries": 0},
        guards={"wall": "2m"},
        tracking={"enabled": False},
        pruning={"warmup": 0.2},
    )
    check_study(tmp_path, changed)
    assert open_study(tmp_path, changed).num_before == 0


def test_a_changed_kl_guard_may_not(tmp_path: Path) -> None:
    open_study(tmp_path, small_spec())
    with pytest.raises(StudyError, match=r"guards\.kl\.limit"):
        open_study(tmp_path, small_spec(guards={"kl": {"limit": 0.5}}))


def test_a_damaged_database_is_refused_with_advice_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / DATABASE  # field case B22
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4000)
    before = file_hash(path)
    with pytest.raises(StudyError, match=r"not readable as a study's database .*--fresh"):
        open_study(tmp_path, small_spec())
    assert file_hash(path) == before


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    before = file_hash(path)
    with pytest.raises(StudyError, match="not an Optuna database"):
        open_study(tmp_path, small_spec())
    assert file_hash(path) == before


def test_an_old_table_schema_is_refused_with_the_upgrade_command_and_left_alone(
    tmp_path: Path,
) -> None:  # field case B22
    open_study(tmp_path, small_spec()).storage.engine.dispose()
    path = tmp_path / DATABASE
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v2.4.0.a'")
    connection.close()
    before = file_hash(path)
    with pytest.raises(StudyError, match="optuna storage upgrade --storage"):
        open_study(tmp_path, small_spec())
    assert file_hash(path) == before


def test_a_study_that_kltune_did_not_make_is_refused(tmp_path: Path) -> None:
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / DATABASE}")
    study = optuna.create_study(storage=storage, study_name="mine")
    study.add_trial(optuna.trial.create_trial(value=1.0))
    with pytest.raises(StudyError, match="was not made by kltune"):
        open_study(tmp_path, small_spec())


def test_a_process_that_died_right_after_creating_the_study_leaves_no_dead_end(
    tmp_path: Path,
) -> None:
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / DATABASE}")
    optuna.create_study(storage=storage, study_name="small", direction="maximize")
    check_study(tmp_path, small_spec())
    assert open_study(tmp_path, small_spec()).num_before == 0
    check_study(tmp_path, small_spec())


def test_looking_at_a_folder_without_a_study_creates_nothing(tmp_path: Path) -> None:
    check_study(tmp_path / "absent", small_spec())
    with pytest.raises(StudyError, match="no study here"):
        load_study(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_a_copied_study_folder_opens_after_the_original_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    open_study(tmp_path / "a", small_spec()).storage.engine.dispose()
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert open_study(tmp_path / "b", small_spec()).optuna_study.study_name == "small"


def ask_and_tell(path: Path, count: int) -> None:
    opened = open_study(path, small_spec())
    for _ in range(count):
        trial = opened.optuna_study.ask()
        opened.storage.record_heartbeat(opened.trial_id(trial.number))
        setting = suggest(trial, small_spec())
        for step in range(3):
            trial.report(setting.beta, step)
            trial.set_user_attr("kltune.evals", {str(step): [setting.beta, 0.1, 0.1]})
        trial.set_constraint("kl", -1.0)
        opened.optuna_study.tell(trial, setting.beta)


@pytest.mark.slow
def test_four_processes_on_one_file_lose_nothing(tmp_path: Path) -> None:  # field case B1
    open_study(tmp_path, small_spec())
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=ask_and_tell_quietly, args=(tmp_path,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    trials = load_study(tmp_path).get_trials()
    assert [trial.number for trial in trials] == list(range(12))
    assert all(trial.state is optuna.trial.TrialState.COMPLETE for trial in trials)


def ask_and_tell_quietly(path: Path) -> None:
    warnings.simplefilter("ignore")
    ask_and_tell(path, 3)


def test_a_reader_that_holds_the_file_for_seconds_costs_time_and_nothing_else(
    tmp_path: Path,
) -> None:  # field case B2
    opened = open_study(tmp_path, small_spec())
    opened.optuna_study.enqueue_trial({})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # heartbeats, which the ledger sends
        trial = opened.optuna_study.ask()
    is_held = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        is_held.set()
        time.sleep(3)
        connection.execute("ROLLBACK")
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    before = time.monotonic()
    trial.report(0.5, 1)
    assert time.monotonic() - before > 2
    holder.join()
    assert opened.optuna_study.get_trials()[0].intermediate_values == {1: 0.5}


def test_a_closed_study_is_one_file_that_a_reader_can_open_where_nothing_can_be_written(
    tmp_path: Path,
) -> None:
    opened = open_study(tmp_path, small_spec())
    opened.optuna_study.enqueue_trial({})
    opened.close()
    assert {path.name for path in tmp_path.iterdir()} == {DATABASE, ".turn"}
    assert (tmp_path / DATABASE).read_bytes()[18:20] == b"\x01\x01"  # not in write-ahead mode
    assert len(load_study(tmp_path).get_trials()) == 1


def test_a_study_whose_process_was_killed_opens_with_everything_that_it_had_told(
    tmp_path: Path,
) -> None:
    context = multiprocessing.get_context("spawn")
    worker = context.Process(target=tell_and_die, args=(tmp_path,))
    worker.start()
    worker.join()
    assert worker.exitcode == -9
    assert [t.value for t in load_study(tmp_path).get_trials()] == [0.5]


def tell_and_die(path: Path) -> None:
    opened = open_study(path, small_spec())
    opened.optuna_study.add_trial(optuna.trial.create_trial(value=0.5))
    os.kill(os.getpid(), signal.SIGKILL)


def test_whenever_the_process_that_makes_a_study_is_killed_the_next_one_makes_it(
    tmp_path: Path,
) -> None:
    context = multiprocessing.get_context("fork")
    make_and_stay(tmp_path / "warm", None)  # what is imported late is imported
    dice, found, whole_s = random.Random(0), set[str](), 0.0
    for number in range(8):
        folder = tmp_path / str(number)
        is_made = context.Event()
        maker = context.Process(target=make_and_stay, args=(folder, is_made))
        since = time.monotonic()
        maker.start()
        if number == 0:
            assert is_made.wait(60)
            whole_s = time.monotonic() - since
        else:
            time.sleep(dice.uniform(0.1, 1.0) * whole_s)
        maker.kill()
        maker.join()
        found |= {p.name for p in folder.iterdir()} if folder.is_dir() else set()
        check_study(folder, small_spec())
        open_study(folder, small_spec()).close()
        assert {p.name for p in folder.iterdir()} == {DATABASE, ".turn"}
    assert UNFINISHED in found  # some did die in between


def make_and_stay(folder: Path, is_made: Event | None) -> None:
    folder.mkdir()
    opened = open_study(folder, small_spec())
    if is_made is not None:
        is_made.set()
        time.sleep(60)
    opened.close()


def test_what_is_left_beside_a_file_that_was_never_made_does_not_undo_the_next_one(
    tmp_path: Path,
) -> None:
    """A journal without its file would be rolled back into the new one."""
    with closing(sqlite3.connect(tmp_path / "other", isolation_level=None)) as other:
        for statement in ("PRAGMA cache_size = 1", "BEGIN", "CREATE TABLE t (x BLOB)"):
            other.execute(statement)
        for _ in range(20):
            other.execute("INSERT INTO t VALUES (zeroblob(9000))")
        journal = (tmp_path / "other-journal").read_bytes()
    (tmp_path / "other").unlink()
    for name in (f"{DATABASE}-journal", UNFINISHED, f"{UNFINISHED}-journal"):
        (tmp_path / name).write_bytes(journal)
    (tmp_path / DATABASE).touch()
    check_study(tmp_path, small_spec())
    open_study(tmp_path, small_spec()).close()
    assert {path.name for path in tmp_path.iterdir()} == {DATABASE, ".turn"}
    assert load_study(tmp_path).study_name == "small"


def test_a_process_that_died_while_it_stamped_the_study_leaves_it_usable(tmp_path: Path) -> None:
    opened = open_study(tmp_path, small_spec())
    opened.close()
    with closing(sqlite3.connect(tmp_path / "study.db")) as database, database:
        database.execute("DELETE FROM study_user_attributes WHERE key = 'kltune.schema'")
    again = open_study(tmp_path, small_spec())
    assert again.optuna_study.user_attrs["kltune.schema"] == 1
    again.close()


def test_who_has_read_a_study_holds_no_search_up_that_ends(tmp_path: Path) -> None:
    search = open_study(tmp_path, small_spec())
    with reading(tmp_path) as study:
        assert study.study_name == "small"
    dashboard = storage_to_read(f"sqlite:///{tmp_path / DATABASE}")
    assert [found.study_name for found in dashboard.get_all_studies()] == ["small"]
    search.close()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_reading_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no study here"), reading(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
