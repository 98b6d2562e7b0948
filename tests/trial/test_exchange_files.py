from __future__ import annotations

from pathlib import Path

from kltune.metrics.jsonl import append_rows, write_json
from kltune.trial.bundle import Version
from kltune.trial.exchange_files import (
    attempt_of,
    is_sent,
    known_version,
    marks_of,
    names_of,
    note_version,
)


def test_what_is_half_written_or_of_this_copy_alone_is_not_exchanged(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"attempt": 3})
    for name in (
        "mlflow.json",
        ".config.json.1.tmp",
        "checkpoints/last.new/w",
        "checkpoints/last/w",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert sorted(names_of(tmp_path)) == ["checkpoints/last/w", "config.json"]
    assert attempt_of(tmp_path) == 3
    assert attempt_of(tmp_path / "absent") == 0


def test_a_row_more_and_a_new_checkpoint_are_not_sent_yet(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"attempt": 1})
    append_rows(tmp_path / "metrics.jsonl", [{"step": 1}])
    assert not is_sent(tmp_path)
    assert known_version(tmp_path) is None
    note_version(tmp_path, Version(1, 4), marks_of(tmp_path))
    assert is_sent(tmp_path)
    assert known_version(tmp_path) == Version(1, 4)
    append_rows(tmp_path / "metrics.jsonl", [{"step": 2}])
    assert not is_sent(tmp_path)
    note_version(tmp_path, Version(1, 5), marks_of(tmp_path))
    write_json(tmp_path / "config.json", {"attempt": 1})  # the same bytes, written anew
    assert not is_sent(tmp_path)
