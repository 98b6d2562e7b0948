"""Field cases D9 and B21: rows that the disk takes half of, or that a crash cut, are never taken for whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kltune.errors import DiskError, StudyError
from kltune.metrics.jsonl import Damage, append_rows, encode, read_rows, write_json
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.trial.folder import TrialFolder
from tests.disk_case import fill, largest_file, read_only, small_disk

ROWS = [{"step": step, "note": f"é {step}", "gold_by_prompt": [0.5, step]} for step in range(10)]


def test_a_last_row_cut_at_any_byte_is_dropped_or_whole_and_the_next_ones_follow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # field case B21
    path = tmp_path / "metrics.jsonl"
    append_rows(path, ROWS)
    whole = path.read_bytes()
    last = (encode(ROWS[-1]) + "\n").encode()
    for kept in range(len(last) + 1):
        caplog.clear()
        path.write_bytes(whole[: len(whole) - len(last) + kept])
        is_whole = kept >= len(last) - 1  # without its line's end it is
        damage: list[Damage] = []
        found = read_rows(path, damage)
        assert [row["step"] for row in found] == list(range(9 + is_whole)), kept
        assert [(d.line, d.is_cut) for d in damage] == (
            [] if is_whole or kept == 0 else [(10, True)]
        )
        assert ("line 10 is cut short" in caplog.text) == (not is_whole and kept > 0)
        append_rows(path, [{"step": 10}])
        assert [row["step"] for row in read_rows(path)] == [*range(9 + is_whole), 10], kept


def test_zeros_that_a_power_failure_left_at_the_end_cost_that_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_rows(path, ROWS)
    with path.open("ab") as file:
        file.write(bytes(300))
    append_rows(path, [{"step": 10}])
    assert [row["step"] for row in read_rows(path)] == list(range(11))


def test_rows_that_a_full_disk_takes_half_of_are_taken_back(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        path = disk / "metrics.jsonl"
        append_rows(path, ROWS)
        before = path.read_bytes()
        fill(disk / "ballast")
        with pytest.raises(OSError, match="No space left") as caught:
            append_rows(path, [{"step": step, "text": "x" * 500} for step in range(200)])
        assert caught.value.filename == str(path)
        assert path.read_bytes() == before
        (disk / "ballast").unlink()
        append_rows(path, [{"step": 10}])
        assert [row["step"] for row in read_rows(path)] == list(range(11))


def test_rows_beyond_a_limit_of_file_sizes_are_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_rows(path, ROWS)
    before = path.read_bytes()
    with largest_file(len(before) + 100), pytest.raises(OSError, match="File too large"):
        append_rows(path, ROWS)
    assert path.read_bytes() == before


def test_json_that_does_not_fit_leaves_the_old_file_and_no_scratch(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    with largest_file(50), pytest.raises(OSError, match="File too large"):
        write_json(path, {"a": "x" * 500}, is_durable=True)
    assert json.loads(path.read_text()) == {"schema": 1, "a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def config(folder: TrialFolder) -> None:
    setting = TrialSpec(beta=0.0, learning_rate=1e-3)
    folder.write_config(setting, "zero", 0.5, KLUnit.TOKEN, BetaUnit.REWARD)


def test_a_read_only_folder_is_one_sentence(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 3, 1)
    config(folder)
    with read_only(tmp_path), pytest.raises(DiskError) as caught:
        folder.append_event("started", 0)
    assert "events.jsonl: can't be written (Read-only file system; " in str(caught.value)
    assert not (folder.path / "events.jsonl").exists()


def test_a_folder_in_the_place_of_a_file_is_one_sentence_to_writer_and_reader(
    tmp_path: Path,
) -> None:
    folder = TrialFolder(tmp_path, 3, 1)
    (folder.path / "events.jsonl").mkdir(parents=True)
    with pytest.raises(DiskError, match=r"events\.jsonl: can't be written \(Is a directory"):
        folder.append_event("started", 0)
    with pytest.raises(StudyError, match=r"events\.jsonl: can't be read \(Is a directory\)"):
        read_rows(folder.path / "events.jsonl")
