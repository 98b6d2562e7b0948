"""Files give back the numbers that went in, and no spreadsheet runs what a model wrote."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from fake_study import trial, typical_trials, write_study

from kltune.errors import RunError, SpecError
from kltune.frames.files import TABLES, refused, write_tables
from kltune.frames.tables import samples_table, steps_table, trials_table
from kltune.report.rows import StudyRows, read_study

NASTY = ("=cmd|' /C calc'!A0", "+1", "-2", "@x", "\tx", "\r=1", "'quoted", 'a "b",\r\nc', "\nx", "")


def study(folder: Path) -> StudyRows:
    return read_study(write_study(folder / "s", typical_trials()[:6]))


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_gives_every_number_back(tmp_path: Path) -> None:
    found = study(tmp_path)
    written = write_tables(found, tmp_path / "out", "csv")
    assert [p.name for p in written] == [*(f"{name}.csv" for name in TABLES), "columns.csv"]
    table = steps_table(found)
    rows = cells(tmp_path / "out" / "steps.csv")
    for name in table.columns:
        for value, row in zip(table[name].tolist(), rows, strict=True):
            assert row[name] == "" if value != value else float(row[name]) == value


def test_parquet_gives_the_table_back_and_says_its_units(tmp_path: Path) -> None:
    found = study(tmp_path)
    write_tables(found, tmp_path / "out", "parquet")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {f"{n}.parquet" for n in TABLES}
    for name, make in TABLES.items():
        table = make(found)
        back = pd.read_parquet(tmp_path / "out" / f"{name}.parquet")
        flat = table.reset_index() if table.index.name else table
        pd.testing.assert_frame_equal(back, flat, check_categorical=False)
    field = pq.read_schema(tmp_path / "out" / "trials.parquet").field("target_kl")
    assert field.metadata[b"unit"] == b"nats/token"
    assert b"Set point" in field.metadata[b"meaning"]


def test_no_cell_starts_a_formula_and_every_text_comes_back(tmp_path: Path) -> None:
    found = read_study(
        write_study(tmp_path / "s", [trial(0.1, texts=NASTY[:5]), trial(0.2, texts=NASTY[5:])])
    )
    write_tables(found, tmp_path / "out", "csv")
    rows = cells(tmp_path / "out" / "samples.csv")
    table = samples_table(found)
    for text, row in zip(table["completion"], rows, strict=True):
        cell = row["completion"]
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
        assert cell.removeprefix("'") == text
    assert [float(row["kl_seq"]) for row in rows] == table["kl_seq"].tolist()


def test_a_negative_number_stays_a_number(tmp_path: Path) -> None:
    found = study(tmp_path)
    write_tables(found, tmp_path / "out", "csv")
    proxies = [row["train/proxy_mean"] for row in cells(tmp_path / "out" / "steps.csv")]
    assert any(text.startswith("-") for text in proxies)


def test_parquet_keeps_text_as_it_is(tmp_path: Path) -> None:
    found = read_study(write_study(tmp_path / "s", [trial(0.1, texts=NASTY)]))
    write_tables(found, tmp_path / "out", "parquet")
    back = pd.read_parquet(tmp_path / "out" / "samples.parquet")
    assert back["completion"].tolist() == samples_table(found)["completion"].tolist()


def test_the_columns_are_explained_beside_the_csv(tmp_path: Path) -> None:
    found = study(tmp_path)
    write_tables(found, tmp_path / "out", "csv")
    rows = {(r["table"], r["column"]): r for r in cells(tmp_path / "out" / "columns.csv")}
    assert rows["steps", "kl/exact_token"]["unit"] == "nats/token"
    for name in TABLES:
        with (tmp_path / "out" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            assert all((name, column) in rows for column in next(csv.reader(file)))


def test_earlier_tables_are_replaced_and_other_files_are_not_touched(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_tables(read_study(write_study(tmp_path / "a", [trial(0.1)])), out, "csv")
    found = study(tmp_path)
    write_tables(found, out, "csv")
    write_tables(found, out, "parquet")
    assert len(cells(out / "trials.csv")) == len(trials_table(found))
    (out / "mine.txt").write_text("x", encoding="utf-8")
    with pytest.raises(SpecError, match=r"holds other files \(mine\.txt\)"):
        write_tables(found, out, "csv")
    assert {p.suffix for p in out.iterdir()} == {".csv", ".parquet", ".txt"}  # no scratch is left


def test_a_folder_that_cant_be_used_is_said_before_anything_is_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    assert "is a file" in refused(file)[0]
    assert "can't be written to" in refused(file / "deeper")[0]
    assert refused(tmp_path / "new" / "deep") == []
    assert not (tmp_path / "new").exists()


def test_a_study_is_no_folder_for_its_tables(tmp_path: Path) -> None:
    found = study(tmp_path)
    with pytest.raises(SpecError, match="holds other files"):
        write_tables(found, found.path, "csv")


def test_a_disk_that_fails_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    found = study(tmp_path)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_tables(found, tmp_path / "out", "parquet")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_empty_study_has_files_with_headers(tmp_path: Path) -> None:
    found = read_study(write_study(tmp_path / "s", []))
    write_tables(found, tmp_path / "out", "csv")
    write_tables(found, tmp_path / "out", "parquet")
    assert cells(tmp_path / "out" / "trials.csv") == []
    assert "beta" in pd.read_parquet(tmp_path / "out" / "trials.parquet").columns
