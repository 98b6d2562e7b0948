from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kltune.errors import SpecError
from kltune.spec.prompts import Format
from kltune.tasks.prompts_files import Table, read_file


def read(folder: Path, name: str, text: str | bytes, written: Format) -> Table:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_file(path, written)


def fields(table: Table) -> list[dict[str, Any]]:
    return [dict(row.fields) for row in table.rows]


def test_csv_keeps_quotes_commas_and_line_ends_in_quotes_and_every_value_as_text(
    tmp_path: Path,
) -> None:
    text = '\ufeffprompt,answer\r\n"a, ""b""\nc",007\r\n\r\n plain ,\r\n'
    table = read(tmp_path, "p.csv", text, "csv")
    assert table.problems == []
    assert fields(table) == [
        {"prompt": 'a, "b"\nc', "answer": "007"},
        {"prompt": " plain ", "answer": ""},
    ]
    assert [row.label for row in table.rows] == ["2", "5"]


def test_csv_rows_with_another_number_of_fields_are_named_by_line(tmp_path: Path) -> None:
    table = read(tmp_path, "p.csv", "prompt,answer\nfine,1\na,b,c\nd\n", "csv")
    assert len(table.rows) == 1
    assert table.problems == [
        "line 3: 3 fields, but the header has 2: is a comma or a quote unquoted?",
        "line 4: 1 fields, but the header has 2: is a comma or a quote unquoted?",
    ]


def test_csv_with_a_quote_that_never_ends_or_a_header_twice_is_told(tmp_path: Path) -> None:
    open_quote = read(tmp_path, "p.csv", 'prompt\nfine\n"open\n', "csv")
    assert open_quote.problems[0].startswith("line 3: not CSV")
    assert read(tmp_path, "p.csv", "a,a\n1,2\n", "csv").problems == [
        "line 1: the header has 'a' more than once"
    ]


def test_tsv_is_csv_with_tabs(tmp_path: Path) -> None:
    table = read(tmp_path, "p.tsv", "prompt\tanswer\na, b\t2\n", "csv")
    assert fields(table) == [{"prompt": "a, b", "answer": "2"}]


def test_parquet_gives_plain_python_with_nested_columns(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "truth": [1, 2], "info": {"x": None, "y": 1.5}, "ok": True, "n": 3},
        {"prompt": "b", "truth": [], "info": {"x": "z", "y": 2.0}, "ok": None, "n": 4},
    ]
    days = pa.array([datetime.date(2026, 1, 2), None])
    table = pa.Table.from_pylist(rows).append_column("day", days)
    pq.write_table(table, tmp_path / "p.parquet")
    found = read_file(tmp_path / "p.parquet", "parquet")
    assert fields(found) == [
        {**rows[0], "day": datetime.date(2026, 1, 2)},
        {**rows[1], "day": None},
    ]
    assert type(found.rows[0].fields["ok"]) is bool
    assert found.word == "row"


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    for i in range(2):
        pq.write_table(pa.Table.from_pylist([{"prompt": f"p{i}"}]), tmp_path / f"{i}.parquet")
    assert fields(read_file(tmp_path, "parquet")) == [{"prompt": "p0"}, {"prompt": "p1"}]


def test_what_is_no_parquet_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="not readable as Parquet") as caught:
        read(tmp_path, "p.parquet", b"nothing of the kind", "parquet")
    assert "\n" not in str(caught.value)
    with pytest.raises(SpecError, match="no such file"):
        read_file(tmp_path / "none.parquet", "parquet")


def test_jsonl_keeps_types(tmp_path: Path) -> None:
    table = read(
        tmp_path, "p.jsonl", '{"prompt": "a", "t": [1, 2.5, null, {"k": true}]}\n', "jsonl"
    )
    assert fields(table) == [{"prompt": "a", "t": [1, 2.5, None, {"k": True}]}]


def test_a_format_that_is_said_beats_the_ending(tmp_path: Path) -> None:
    assert fields(read(tmp_path, "p.data", "one\n\ntwo\n", "text")) == [
        {"prompt": "one"}, {"prompt": "two"},
    ]  # fmt: skip


def test_a_json_array_is_read_row_by_row(tmp_path: Path) -> None:
    table = read(tmp_path, "p.json", '\ufeff[{"prompt": "a", "n": 7}, 3, {"prompt": "b"}]', "json")
    assert fields(table) == [{"prompt": "a", "n": 7}, {"prompt": "b"}]
    assert [row.id for row in table.rows] == ["row-1", "row-3"]
    assert table.problems == ['row 2: must be an object like {"prompt": "..."} (got a number)']


def test_json_lines_that_are_called_json_are_read_as_what_they_are(tmp_path: Path) -> None:
    table = read(tmp_path, "p.json", '\n{"prompt": "a"}\n{"prompt": "b"}\n', "json")
    assert fields(table) == [{"prompt": "a"}, {"prompt": "b"}]
    assert (table.word, table.rows[1].label) == ("line", "3")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"data": [{"prompt": "a"}]}', "write the list under 'data' as the whole file"),
        ('{"a": [], "b": []}', "got an object with 'a', 'b'"),
        ('"a"', "got text"),
        ('[{"prompt": "a"},]', "not JSON"),
        ('[{"prompt": NaN}]', "NaN is no JSON number"),
        ('{"prompt": "a"', "not JSON"),
    ],
)
def test_json_that_is_no_array_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError) as raised:
        read(tmp_path, "p.json", text, "json")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_empty_json_file_holds_no_rows(tmp_path: Path) -> None:
    assert fields(read(tmp_path, "p.json", "\n", "json")) == []
