from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kltune.errors import StudyError
from kltune.metrics.jsonl import (
    append_rows,
    encode,
    read_json,
    read_rows,
    read_rows_from,
    write_json,
)


def _strict(text: str) -> Any:
    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_rows_come_back_in_order_with_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "é.jsonl"
    append_rows(path, [{"step": 1, "text": "ü\n"}, {"step": 2}])
    append_rows(path, [{"step": 3}])
    assert [row["step"] for row in read_rows(path)] == [1, 2, 3]
    assert read_rows(path)[0] == {"schema": 1, "step": 1, "text": "ü\n"}


def test_non_finite_numbers_become_null_and_are_named() -> None:
    row = _strict(encode({"a": math.nan, "b": 1.0, "c": [0.0, math.inf], "d": {"e": -math.inf}}))
    assert row["a"] is None
    assert row["c"] == [0.0, None]
    assert row["non_finite"] == ["a", "c", "d.e"]
    assert row["b"] == 1.0


def test_a_finite_row_names_no_non_finite_keys() -> None:
    assert "non_finite" not in _strict(encode({"a": 1.0}))


def test_scalars_of_numpy_and_torch_become_plain_numbers() -> None:
    row = _strict(encode({"a": np.float32(0.5), "b": torch.tensor(0.25), "c": np.int64(3)}))
    assert (row["a"], row["b"], row["c"]) == (0.5, 0.25, 3)


def test_what_json_has_no_form_for_is_named_by_key() -> None:
    with pytest.raises(TypeError, match="thing: JSON has no form for object"):
        encode({"thing": object()})


def test_a_half_written_last_line_is_skipped_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    append_rows(path, [{"step": step} for step in range(10)])
    data = path.read_bytes()
    path.write_bytes(data[:-8])
    with caplog.at_level(logging.WARNING):
        assert [row["step"] for row in read_rows(path)] == list(range(9))
    assert "metrics.jsonl: line 10 is cut short" in caplog.text
    assert path.read_bytes() == data[:-8]  # the original is kept


def test_rows_are_read_as_json_reads_them(tmp_path: Path) -> None:
    lines = [
        '{"half an emoji": "\\ud83d"}',
        '{"a": 0.1, "b": 1e5, "c": -0.0, "d": 5e-324, "e": 1.7976931348623157e308}',
        '{"a": 123456789012345678901234567890, "b": true, "c": null, "d": [1, {"e": "\u00e9"}]}',
        '{"a": 1, "a": 2}',
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert [repr(row) for row in read_rows(tmp_path / "rows.jsonl")] == [
        repr(json.loads(line)) for line in lines
    ]


def test_appending_after_a_half_written_line_loses_only_that_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    append_rows(path, [{"step": 1}, {"step": 2}])
    path.write_bytes(path.read_bytes()[:-5])
    append_rows(path, [{"step": 3}])
    assert [row["step"] for row in read_rows(path)] == [1, 3]
    assert "line 2 is unreadable" in caplog.text


def test_following_a_file_leaves_an_unfinished_line_for_later(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_rows(path, [{"step": 1}])
    rows, offset = read_rows_from(path, 0)
    assert [row["step"] for row in rows] == [1]
    whole = (encode({"step": 2}) + "\n").encode()
    with path.open("ab") as file:
        file.write(whole[:7])
    assert read_rows_from(path, offset) == ([], offset)
    with path.open("ab") as file:
        file.write(whole[7:])
    rows, offset = read_rows_from(path, offset)
    assert [row["step"] for row in rows] == [2]
    assert read_rows_from(path, offset) == ([], offset)


def test_a_newer_schema_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"schema": 2}')
    with pytest.raises(StudyError, match="upgrade kltune"):
        read_json(path)
    with pytest.raises(StudyError, match="upgrade kltune"):
        read_rows(path)


def test_a_failed_write_leaves_the_old_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"schema": 1, "a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_text_that_is_no_json_object_is_a_study_error(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text in ("{", "[1]"):
        path.write_text(text)
        with pytest.raises(StudyError, match=r"config\.json"):
            read_json(path)


def test_half_an_emoji_is_written_as_its_escape_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_json(path, {"text": "a\ud83d b ü"})
    assert "\\ud83d b ü" in path.read_text(encoding="utf-8")
    assert read_json(path)["text"] == "a\ud83d b ü"
    assert encode({"\udc00": "x"}).isascii()
