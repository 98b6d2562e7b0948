from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from kltune.diagnose.detect import Source, detect
from kltune.errors import StudyError


def _file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text", "source"),
    [
        ("a.jsonl", '{"step": 1, "kl": 0.1}\n{"step": 2, "kl": 0.2}\n', Source.LINES),
        ("a.log", '{"step": 1, "data": {"actor/kl_loss": 0.1}}\n', Source.LINES),
        ("a.jsonl", '{"step": 1, "kl"', Source.LINES),
        ("a.json", '{\n "log_history": [\n  {"step": 1, "kl": 0.1}\n ]\n}\n', Source.JSON),
        ("a.json", '{"log_history": [{"step": 1, "kl": 0.1}]}', Source.JSON),
        ("a.json", '[{"step": 1}]', Source.JSON),
        ("a.csv", "step,kl\n1,0.1\n", Source.TABLE),
        ("a.csv", "step;kl\n1;0,1\n", Source.TABLE),
        ("a.txt", "step,kl\n1,0.1\n2,0.2\n", Source.TABLE),
        ("a.tsv", "step\tkl\n1\t0.1\n", Source.TABLE),
        ("a.log", "hello\nstep:1 - actor/kl_loss:0.1\n", Source.CONSOLE),
        ("a.log", "{'loss': 0.1, 'kl': 0.2}\n", Source.CONSOLE),
        ("a.txt", "\ufeffstep,kl\n1,0.1\n", Source.TABLE),
    ],
)
def test_a_file_is_told_by_its_beginning(
    tmp_path: Path, name: str, text: str, source: Source
) -> None:
    path = _file(tmp_path / name, text)
    assert detect(path) == (source, path)


def test_a_folder_is_told_by_what_is_in_it(tmp_path: Path) -> None:
    study = tmp_path / "study"
    trial = _file(study / "trials/00003/config.json", "{}").parent
    _file(trial / "metrics.jsonl", "")
    assert detect(study) == (Source.STUDY, study)
    assert detect(trial) == (Source.TRIAL, trial)
    assert detect(trial / "metrics.jsonl") == (Source.TRIAL, trial)
    trl = tmp_path / "trl"
    _file(trl / "checkpoint-5/trainer_state.json", "{}")
    last = _file(trl / "checkpoint-10/trainer_state.json", "{}")
    assert detect(trl) == (Source.JSON, last)
    own = _file(trl / "trainer_state.json", "{}")
    assert detect(trl) == (Source.JSON, own)
    board = tmp_path / "board"
    _file(board / "run/events.out.tfevents.1.host", "x")
    assert detect(board) == (Source.EVENTS, board)
    lone = tmp_path / "lone"
    log = _file(lone / "run.jsonl", '{"step": 1}\n')
    assert detect(lone) == (Source.LINES, log)


def test_several_logs_in_a_folder_are_listed(tmp_path: Path) -> None:
    _file(tmp_path / "a.jsonl", '{"step": 1}\n')
    _file(tmp_path / "b.csv", "step,kl\n")
    with pytest.raises(StudyError, match=r"give one of them: a.jsonl, b.csv"):
        detect(tmp_path)


def test_a_study_without_its_trials_is_no_other_log(tmp_path: Path) -> None:
    _file(tmp_path / "spec.yaml", "name: a\n")
    _file(tmp_path / "seeds.jsonl", '{"beta": 1}\n')
    with pytest.raises(StudyError, match="a kltune study without its trials"):
        detect(tmp_path)


def test_a_path_that_holds_nothing_says_what_was_looked_for(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(StudyError, match=r"looked for .*trainer_state.json.*verl"):
            detect(path)
    with pytest.raises(StudyError, match="the file is empty"):
        detect(_file(tmp_path / "empty.jsonl", "\n \n"))


def test_binary_junk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(StudyError, match="a binary file of no known kind"):
        detect(path)


def test_a_database_is_told_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "anything"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE a (b)")
    database.close()
    assert detect(path) == (Source.DATABASE, path)


def test_only_the_beginning_of_a_huge_file_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    row = json.dumps({"step": 1, "kl": 0.1})
    path.write_text("\n".join([row] * 50_000) + "\n", encoding="utf-8")
    assert detect(path)[0] is Source.LINES


def test_nesting_deeper_than_any_log_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 60_000 + "]" * 60_000, encoding="utf-8")
    assert detect(path)[0] is Source.JSON
