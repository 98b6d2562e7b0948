"""What the studies' scripts share: flags, tables of every run, results and curves over seeds."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from studies_case import STUDIES

import kltune
from tests.arms_case import ARMS, SPEC, Fakes, fakes, loaded_spec

sys.path.insert(0, str(STUDIES))  # as the scripts do it

import experiment
from experiment import Block, Study, curves, write_results
from experiment_figures import save_figure

__all__ = ["fakes"]  # a fixture


def run_rows(**ends: int) -> pd.DataFrame:
    """One arm a word, two seeds; its first seed ends at the given step, the other at 10; value = seed + step."""
    rows = [
        {"block": "b", "arm": arm, "seed": seed, "step": step, "gold": seed + step}
        for arm, end in ends.items()
        for seed, last in ((200, 10), (100, end))
        for step in sorted({*range(0, last, 5), last})
    ]
    return pd.DataFrame(rows)


def test_curves_are_by_seed_and_step() -> None:
    found = curves(run_rows(b=10, a=10), "gold")
    assert list(found) == ["b", "a"]  # as in the table
    assert found["a"].tolist() == [[100, 105, 110], [200, 205, 210]]


def test_a_run_that_ended_early_keeps_its_last_evaluation() -> None:
    found = curves(run_rows(a=5, b=10), "gold")
    assert found["a"].tolist() == [[100, 105, 105], [200, 205, 210]]


def test_where_a_run_broke_off_is_no_evaluation_of_the_others() -> None:
    found = curves(run_rows(a=7, b=10), "gold")
    # At step 7 nobody else was judged: no column of its own, but its last value counts.
    assert found["a"].tolist() == [[100, 105, 107], [200, 205, 210]]
    assert found["b"].tolist() == [[100, 105, 110], [200, 205, 210]]


def test_a_gold_that_is_not_finite_is_replaced_by_the_one_before() -> None:
    rows = run_rows(a=10)
    rows["gold"] = rows["gold"].astype(float)
    rows.loc[(rows["seed"] == 100) & (rows["step"] == 10), "gold"] = math.nan
    assert curves(rows, "gold")["a"][0].tolist() == [100, 105, 105]


def test_blocks_are_told_apart_or_asked_for() -> None:
    one = run_rows(a=10)
    both = pd.concat([one, one.assign(block="c", gold=one["gold"] + 1000)])
    assert curves(both, "gold", "c")["a"][0].tolist() == [1100, 1105, 1110]
    with pytest.raises(ValueError, match="duplicate"):
        curves(both, "gold")  # never a mean of the two


def test_results_are_strict_json_with_few_digits(tmp_path: Path) -> None:
    found = {
        "pi": math.pi,
        "small": np.float64(1.23456789e-7),
        "lost": [math.nan, math.inf, None],
        "array": np.array([[1.0, 2.5]]),
        "flag": np.bool_(True),
        "whole": np.int64(123456789),
        1: ("a", True),
    }
    write_results(found, tmp_path / "results.json")

    def refuse(text: str) -> None:
        raise AssertionError(text)

    text = (tmp_path / "results.json").read_text()
    assert json.loads(text, parse_constant=refuse) == {
        "pi": 3.1416,
        "small": 1.2346e-7,
        "lost": [None, None, None],
        "array": [[1.0, 2.5]],
        "flag": True,
        "whole": 123456789,
        "1": ["a", True],
    }
    assert text.endswith("}\n")
    assert experiment.read_results(tmp_path)["pi"] == 3.1416


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A study on the fake bank, with a README."""
    folder = tmp_path / "study"
    folder.mkdir()
    loaded_spec(folder)
    (folder / "README.md").write_text("# Is it so?\n<!-- ends -->\n<!-- /ends -->\n")

    def blocks(small: bool, out: Path) -> dict[str, Block]:
        assert out.is_dir()
        few = Block(ARMS, [1], {"trainer.steps": 5})
        return (
            {"few": few} if small else {"few": few, "0.1": Block({"None": ARMS["no KL"]}, [1, 2])}
        )

    def analyse(runs: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
        return {"evals": len(runs), "steps": len(steps), "arms": sorted(set(runs["arm"]))}

    def draw(_runs: pd.DataFrame, _steps: pd.DataFrame, results: Any, out: Path) -> None:
        assert results["evals"]
        save_figure(out / "ends.png", 3, 2, lambda figure: figure.add_subplot())

    def tables(results: dict[str, Any]) -> dict[str, str]:
        return {"ends": f"{results['evals']} evaluations"}

    return Study(folder, blocks, analyse, draw, tables, keeps_steps=True)


def test_a_study_is_run_written_down_analysed_and_drawn(study: Study, fakes: Fakes) -> None:
    results = experiment.run_study(study, study.folder)
    # Two arms to step 5 on one seed, one arm to step 12 on two.
    assert results == {
        "evals": 2 * 2 + 2 * 4,
        "steps": 2 * 5 + 2 * 12,
        "arms": ["None", "no KL", "some"],
    }
    runs = experiment.read_table(study.folder / "runs.csv")
    assert list(runs) == ["block", "arm", "seed", "step", *experiment.EVALS.values()]
    assert list(runs["block"].unique()) == ["few", "0.1"]
    steps = experiment.read_table(study.folder / "steps.csv")
    assert list(steps) == ["block", "arm", "seed", "step", *experiment.STEPS.values()]
    facts = json.loads((study.folder / "machine.json").read_text())
    assert list(facts["blocks"]) == ["few", "0.1"]
    assert facts["blocks"]["few"]["ends"] == {"done": 2}
    assert facts["blocks"]["0.1"]["seeds"] == [1, 2]
    assert facts["blocks"]["few"]["arms"]["some"]["beta"] == 0.1
    assert facts["blocks"]["few"]["wall_s"] >= 0
    assert (study.folder / "ends.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "<!-- ends -->\n12 evaluations\n<!-- /ends -->" in (study.folder / "README.md").read_text()
    )


def test_the_tables_are_those_of_the_record(study: Study, fakes: Fakes) -> None:
    experiment.run_study(study, study.folder)
    runs = experiment.read_table(study.folder / "runs.csv")
    evals = kltune.open_arms(study.folder / "runs" / "few").evals
    mine = runs[runs["block"] == "few"]
    for name, column in experiment.EVALS.items():
        if name in evals:
            assert mine[column].to_numpy() == pytest.approx(evals[name].to_numpy(), rel=1e-4)


def test_run_again_it_trains_nothing_and_writes_the_same(study: Study, fakes: Fakes) -> None:
    experiment.run_study(study, study.folder)
    names = ("runs.csv", "steps.csv", "machine.json", "results.json", "README.md", "ends.png")
    before = [(study.folder / name).read_bytes() for name in names]
    loads = len(fakes.loads)
    experiment.run_study(study, study.folder)
    assert len(fakes.loads) == loads
    assert [(study.folder / name).read_bytes() for name in names] == before


def test_what_is_prepared_is_there_before_the_blocks(study: Study, fakes: Fakes) -> None:
    told: list[bool] = []

    def prepare(small: bool, out: Path) -> None:
        assert out.is_dir()
        told.append(small)

    prepared = Study(study.folder, study.blocks, study.analyse, prepare=prepare)
    results = experiment.run_study(prepared, study.folder, small=True)
    assert told == [True]
    assert results["steps"] == 0  # none are kept
    assert not (study.folder / "steps.csv").exists()


def flags(study: Study, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["study.py", *words])
    experiment.main(study)


def test_flags(
    study: Study,
    fakes: Fakes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        flags(study, monkeypatch, "--small")
    assert "--small: give another --out" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        flags(study, monkeypatch, "--analyse")
    assert "--analyse: " in capsys.readouterr().err
    assert fakes.loads == []
    out = tmp_path / "small"
    flags(study, monkeypatch, "--small", "--out", str(out))
    assert f"written: {out}" in capsys.readouterr().err
    assert [path.name for path in (out / "runs").iterdir()] == ["few"]
    assert not (study.folder / "runs.csv").exists()
    (out / "results.json").unlink()
    loads = len(fakes.loads)
    flags(study, monkeypatch, "--analyse", "--out", str(out))
    assert experiment.read_results(out)["evals"] == 4
    assert len(fakes.loads) == loads


def test_the_studys_own_tables_stay_however_its_folder_is_spelled(
    study: Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(study.folder)
    for spelled in (".", f"../{study.folder.name}"):
        with pytest.raises(SystemExit) as exit_:
            flags(study, monkeypatch, "--small", "--out", spelled)
        assert exit_.value.code == 2
        assert "--small: give another --out" in capsys.readouterr().err


def test_damaged_tables_are_refused_in_a_sentence_and_nothing_is_written(
    study: Study,
    fakes: Fakes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    experiment.run_study(study, study.folder)
    (study.folder / "results.json").unlink()
    table = study.folder / "runs.csv"
    whole = table.read_bytes()
    lines = whole.splitlines(keepends=True)
    damaged = {
        b"": "runs.csv is empty or cut",
        whole[:-3]: "runs.csv is empty or cut",
        b"".join(lines[:1]): "runs are absent, the first: ",
        b"".join(lines[:3]): "runs are absent, the first: ",
        None: "holds no runs.csv",
    }
    for text, words in damaged.items():
        table.unlink()
        if text is not None:
            table.write_bytes(text)
        with pytest.raises(SystemExit) as exit_:
            flags(study, monkeypatch, "--analyse")
        assert exit_.value.code == 2
        assert words in capsys.readouterr().err
        assert not (study.folder / "results.json").exists()
        table.touch()
    table.write_bytes(whole)
    flags(study, monkeypatch, "--analyse")
    assert (study.folder / "results.json").is_file()


def test_a_run_that_diverged_is_counted(tmp_path: Path, fakes: Fakes) -> None:
    fakes.bank.nan_at = {1: 3}
    blocks = {"b": Block(ARMS, [1])}
    kltune.run_arms(SPEC, arms=ARMS, seeds=[1], out=tmp_path / "runs" / "b")
    experiment.write_tables(blocks, tmp_path, keeps_steps=False)
    facts = json.loads((tmp_path / "machine.json").read_text())
    assert facts["blocks"]["b"]["ends"] == {"done": 1, "diverged": 1}
    runs = experiment.read_table(tmp_path / "runs.csv")
    assert runs[runs["arm"] == "some"]["step"].tolist() == [0, 3]
    found = curves(runs, "gold", "b")
    assert found["some"].shape == found["no KL"].shape == (1, 4)
    assert found["some"][0, 1:].tolist() == [found["some"][0, 1]] * 3
