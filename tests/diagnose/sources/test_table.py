from __future__ import annotations

import math
from pathlib import Path

import pytest

from kltune.diagnose.sources.table import read_table
from kltune.errors import StudyError


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_plain_table_is_one_run(tmp_path: Path) -> None:
    (raw,) = read_table(_write(tmp_path, "\ufeffstep,kl,note\n1,0.1,a\n2,NaN,b\n3,,c\n"))
    assert raw.rows[0] == (1, {"kl": 0.1})
    assert math.isnan(raw.rows[1][1]["kl"])
    assert len(raw.rows) == 2


def test_an_export_holds_a_run_per_name_and_no_bounds(tmp_path: Path) -> None:
    head = '"Step","my - run - train/kl","my - run - train/kl__MIN","my - run - train/kl__MAX","b - train/kl"'
    first, second = read_table(_write(tmp_path, f"{head}\n1,0.1,0.0,0.2,0.5\n2,0.2,0.1,0.3,\n"))
    assert first.path.endswith("(my - run)")
    assert first.kind == "Weights & Biases export"
    assert first.rows == ((1, {"train/kl": 0.1}), (2, {"train/kl": 0.2}))
    assert second.rows == ((1, {"train/kl": 0.5}),)


def test_another_axis_of_an_export_is_the_step(tmp_path: Path) -> None:
    (raw,) = read_table(_write(tmp_path, "train/global_step,r - kl\n10,0.1\n20,0.2\n"))
    assert [step for step, _ in raw.rows] == [10, 20]


def test_a_table_without_steps_counts_its_rows_and_says_so(tmp_path: Path) -> None:
    (raw,) = read_table(_write(tmp_path, "kl,reward\n0.1,1\n0.2,2\n"))
    assert [step for step, _ in raw.rows] == [1, 2]
    assert "the number of the row stands for it" in raw.notes[0]


def test_rows_out_of_order_are_sorted_and_repeated_ones_replaced(tmp_path: Path) -> None:
    (raw,) = read_table(_write(tmp_path, "step,kl\n3,0.3\n1,0.1\n1,0.15\n"))
    assert raw.rows == ((1, {"kl": 0.15}), (3, {"kl": 0.3}))
    assert any("go back from 3 to 1" in note for note in raw.notes)


def test_semicolons_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="are separated by semicolons"):
        read_table(_write(tmp_path, "step;kl\n1;0,1\n"))


def test_decimal_commas_are_refused_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"row 2, kl: '0,2' has a decimal comma"):
        read_table(_write(tmp_path, 'step,kl\n1,0.1\n2,"0,2"\n'))


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "step,name\n1,a\n", "step,kl\n"])
def test_a_table_without_names_or_numbers_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StudyError):
        read_table(_write(tmp_path, text))


def test_a_row_with_fewer_cells_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    (raw,) = read_table(_write(tmp_path, "step,kl,reward\n1,0.1,1\n2,0.2\n"))
    assert raw.rows[1] == (2, {"kl": 0.2})


def test_a_column_of_words_is_remembered_by_its_name(tmp_path: Path) -> None:
    (raw,) = read_table(_write(tmp_path, "step,kl,reward\n1,hello,0.1\n2,world,0.2\n"))
    assert raw.texts == {"kl": "row 1: 'hello'"}
