"""Files of scores and answers: what is wrong is named by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.rewards.tables import read_table


def table(tmp_path: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding=encoding, newline="")
    return path


def test_rows_come_in_the_order_of_the_asked_columns(tmp_path: Path) -> None:
    csv = table(tmp_path, "a.csv", 'a,b\r\n1,"two, ""2""\nlines"\r\n', "utf-8-sig")
    assert read_table(csv, ("b", "a"), "f") == [('two, "2"\nlines', "1")]
    jsonl = table(tmp_path, "a.jsonl", '{"a": 1, "b": "x\u2028y"}\n\n{"b": null, "a": 2}\n')
    assert read_table(jsonl, ("a",), "f") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"a": 1}\n{"b": 2}', r"line 2: no a; columns there: b"),
        ("a.jsonl", '{"a": 1', "line 1: not readable as JSON"),
        ("a.jsonl", "[1]", "line 1: expected an object"),
        ("a.jsonl", "\n", "holds no rows"),
        ("a.csv", "a,b\n1\n", "line 2: no b"),
        ("a.csv", "a,b\n1,2,3\n", "line 2: more fields than columns"),
        ("a.csv", 'a,b\n1,"2\n', "line 1: unexpected end of data"),
        ("a.xlsx", "", "must be a .jsonl or a .csv file"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        read_table(
            table(tmp_path, name, text), ("a", "b") if ".csv" in name else ("a",), "task.gold"
        )
    assert str(caught.value).startswith("task.gold: ")


def test_another_encoding_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="can't be read"):
        read_table(table(tmp_path, "a.csv", "a\né\n", "latin-1"), ("a",), "f")
