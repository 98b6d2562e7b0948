"""Tables hold what the record holds, in types that pandas users expect."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fake_study import trial, typical_trials, write_study

from kltune.frames.tables import evals_table, samples_table, steps_table, trials_table
from kltune.metrics.jsonl import append_rows, read_rows
from kltune.report.rows import read_study
from kltune.report.summary import trial_data
from kltune.trial.outcome import StopReason


def test_a_row_a_trial_says_what_report_json_says(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", typical_trials()))
    table = trials_table(study)
    assert list(table.index) == [row.number for row in study.trials]
    assert table.index.name == "trial"
    same = ("value", "gold_start", "gold_peak", "gold_final", "gold_last", "kl_token", "kl_seq")
    for row in study.trials:
        data = trial_data(study, row)
        for name in (*same, "best_step", "feasible", "coefficient", "state", "origin", "steps"):
            found, told = table.loc[row.number, name], data[name]
            assert pd.isna(found) if told is None else found == told, (row.number, name)
        assert table.loc[row.number, "gold_peak_se"] == data["gold_se"]


def test_types_are_those_of_their_contents(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", typical_trials()))
    kinds = trials_table(study).dtypes.astype(str)
    assert kinds["best_step"] == kinds["steps"] == "Int64"
    assert kinds["feasible"] == "boolean"
    assert kinds["state"] == kinds["penalty"] == "category"
    assert kinds["beta"] == kinds["target_kl"] == "float64"
    assert kinds["detail"] == "str"


def test_units_and_meanings_travel_with_the_table(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", [trial(0.1)]))
    for make in (trials_table, steps_table, evals_table, samples_table):
        table = make(study)
        named = {*table.columns, *([table.index.name] if table.index.name else [])}
        assert set(table.attrs["units"]) == set(table.attrs["meanings"]) == named
    assert steps_table(study).attrs["units"]["kl/exact_seq"] == "nats/sequence"


def test_steps_and_evaluations_are_the_rows_of_the_record(tmp_path: Path) -> None:
    path = write_study(tmp_path / "s", [trial(0.1), trial(0.2, steps=40)])
    study = read_study(path)
    steps, evals = steps_table(study), evals_table(study)
    assert list(steps.groupby("trial").size()) == [80, 40]
    for table, name in ((steps, "metrics"), (evals, "evals")):
        rows = read_rows(path / "trials" / "00001" / f"{name}.jsonl")
        mine = table[table["trial"] == 1].reset_index(drop=True)
        for key in mine.columns:
            assert list(mine[key]) == [row[key] for row in rows], key
    assert "kl" not in steps.columns  # TRL's name of a metric


def test_a_metric_that_only_some_rows_have_is_nan_elsewhere(tmp_path: Path) -> None:
    path = write_study(tmp_path / "s", [trial(0.1, steps=2), trial(0.2, steps=2)])
    target = path / "trials" / "00001" / "metrics.jsonl"
    rows = read_rows(target)
    rows[1]["train/clip_frac"] = 0.25
    rows[0]["train/loss"] = None  # not finite
    target.unlink()
    append_rows(target, rows)
    table = steps_table(read_study(path))
    assert [x if x == x else None for x in table["train/clip_frac"]] == [None, None, None, 0.25]
    assert np.isnan(table["train/loss"][2])
    assert table["train/loss"].dtype == "float64"


def test_what_a_later_attempt_overtook_is_left_out(tmp_path: Path) -> None:
    path = write_study(tmp_path / "s", [trial(0.1, steps=20)])
    folder = path / "trials" / "00000"
    samples = read_rows(folder / "samples.jsonl")
    again = [{**row, "attempt": 2, "completion": "new"} for row in samples if row["step"] == 10]
    append_rows(folder / "samples.jsonl", again)
    evals = [r for r in read_rows(folder / "evals.jsonl") if r["step"] == 10]
    append_rows(folder / "evals.jsonl", [{**row, "attempt": 2} for row in evals])
    append_rows(
        folder / "events.jsonl", [{"trial": 0, "attempt": 2, "step": 0, "event": "resumed"}]
    )
    table = samples_table(read_study(path))
    assert set(table["step"]) == {0, 10}
    assert set(table[table["step"] == 10]["completion"]) == {"new"}
    assert len(table) == 8


def test_text_of_a_model_is_kept_as_it_is(tmp_path: Path) -> None:
    texts = ("<script>alert(1)</script>", "=1+1", "line\nbreak", "\ud83d half", "", "½ עברית")
    path = write_study(tmp_path / "s", [trial(0.1, texts=texts[:4])])
    found = set(samples_table(read_study(path))["completion"])
    assert {"<script>alert(1)</script>", "=1+1", "line\nbreak"} <= found
    assert "\ufffd half" in found  # UTF-8 has no form for half a pair


def test_a_study_without_trials_has_empty_tables(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", []))
    assert trials_table(study).empty
    assert "beta" in trials_table(study).columns
    assert list(steps_table(study).columns) == ["trial", "step", "attempt", "time"]
    assert evals_table(study).empty
    assert samples_table(study).empty


def test_a_trial_that_runs_or_failed_has_what_it_has(tmp_path: Path) -> None:
    trials = [trial(0.1, reason=None, steps=15), trial(0.2, reason=StopReason.ERROR, steps=3)]
    table = trials_table(read_study(write_study(tmp_path / "s", trials)))
    assert list(table["state"]) == ["running", "failed"]
    assert pd.isna(table.loc[0, "value"])
    assert pd.isna(table.loc[0, "reason"])
    assert list(table["steps"]) == [15, 3]


@pytest.mark.parametrize("name", ["safety", "length"])
def test_other_golds_are_there(tmp_path: Path, name: str) -> None:
    path = write_study(tmp_path / "s", [trial(0.1, others={name: [0.5] * 9}), trial(0.2)])
    samples = path / "trials" / "00000" / "samples.jsonl"
    rows = [{**row, "golds": {name: 0.75}} for row in read_rows(samples)]
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    study = read_study(path)
    assert trials_table(study)[f"gold_{name}_peak"].tolist()[0] == pytest.approx(0.5)
    assert pd.isna(trials_table(study)[f"gold_{name}_peak"].tolist()[1])
    assert f"eval/gold_{name}" in evals_table(study).columns
    assert samples_table(study)[f"gold_{name}"].tolist()[0] == 0.75


def test_parts_of_a_weighted_proxy_are_columns(tmp_path: Path) -> None:
    parts = {"weighted": [{"function": "m:near"}, {"function": "m:short", "name": "brief"}]}
    task = {"prompts": "p.jsonl", "gold": "m:good", "proxy": parts}
    folder = write_study(tmp_path / "s", [trial(0.1)], task=task)
    (path,) = folder.glob("trials/*/metrics.jsonl")
    rows = [{**json.loads(line), "train/part_near": 0.5} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = steps_table(read_study(folder))
    assert set(table["train/part_near"]) == {0.5}
    assert "train/part_brief" not in table  # no step has it
    assert "near" in table.attrs["meanings"]["train/part_near"]
