"""A study opened in Python says what its report says, and writes nothing by being looked at."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fake_study import trial, typical_trials, write_study

import kltune
from kltune.errors import SpecError, StudyError
from kltune.launch.export import ExportRequest, run_export
from kltune.metrics.names import METRICS
from kltune.report.summary import summary


def a_study(folder: Path, **spec: object) -> Path:
    return write_study(folder / "s", typical_trials(), **spec)


def snapshot(path: Path) -> dict[str, tuple[int, float]]:
    return {str(p): (p.stat().st_size, p.stat().st_mtime) for p in path.rglob("*")}


def test_it_says_what_the_report_says(tmp_path: Path) -> None:
    path = a_study(tmp_path)
    study = kltune.open_study(path)
    known = summary(path)
    assert study.name == "kitchen"
    assert study.best is not None
    assert study.best.number == known["best"]["number"]
    assert study.recommendation.headline == known["recommendation"]["headline"]
    assert [list(fact) for fact in study.recommendation.facts] == known["recommendation"]["facts"]
    assert str(study.recommendation).startswith(study.recommendation.headline + "\nSetting: ")
    assert study.trials.loc[study.best.number, "value"] == known["best"]["value"]


def test_tables_curves_and_units_fit_each_other(tmp_path: Path) -> None:
    study = kltune.open_study(str(a_study(tmp_path)))
    curve = study.curve(3)
    assert curve.index.name == "step"
    assert list(curve.index) == [0, 10, 20, 30, 40, 50, 60, 70, 80]
    mine = study.evals[study.evals["trial"] == 3]
    assert list(curve["eval/gold"]) == list(mine["eval/gold"])
    assert study.units["kl/exact_token"] == METRICS["kl/exact_token"].unit
    assert study.units["kl_seq"] == "nats/sequence"
    assert "origin" not in study.units
    assert set(study.samples["trial"]) == set(study.trials.index)
    with pytest.raises(StudyError, match="there is no trial 99"):
        study.curve(99)


def test_looking_writes_nothing_and_works_where_nothing_can_be_written(tmp_path: Path) -> None:
    path = a_study(tmp_path)
    before = snapshot(path)
    study = kltune.open_study(path)
    _ = (study.trials, study.steps, study.evals, study.samples, study.units, study.curve(0))
    _ = (study.recommendation, study.fits.groups, repr(study), study._repr_html_())
    assert snapshot(path) == before
    copied = shutil.copytree(path, tmp_path / "elsewhere")
    pd.testing.assert_frame_equal(kltune.open_study(copied).trials, study.trials)


def test_a_study_that_runs_is_read_and_refreshed(tmp_path: Path) -> None:
    path = write_study(tmp_path / "s", [trial(0.1), trial(0.2, reason=None, steps=15)])
    study = kltune.open_study(path)
    assert "1 unfinished (no process is known to run them)" in repr(study)
    assert len(study.trials) == 2
    shutil.copytree(path / "trials" / "00000", path / "trials" / "00002")
    config = path / "trials" / "00002" / "config.json"
    data = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**data, "trial": 2}), encoding="utf-8")
    assert len(study.trials) == 2
    assert len(study.refresh().trials) == 3


def test_no_answer_says_what_to_change(tmp_path: Path) -> None:
    study = kltune.open_study(
        a_study(tmp_path, objective={"metric": "gold_peak", "kl_limit": 1e-6})
    )
    assert study.best is None
    assert not study.recommendation.is_answer
    assert study.recommendation.facts[0][0] == "What to change"
    with pytest.raises(StudyError, match="Nothing to export"):
        study.export("verl")


def test_an_empty_study_can_be_looked_at(tmp_path: Path) -> None:
    study = kltune.open_study(write_study(tmp_path / "s", []))
    assert study.trials.empty
    assert study.best is None
    assert study.fits.groups == ()
    assert "0 of 24 trials" in repr(study)
    assert "<table" in study._repr_html_()


def test_no_study_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="not a study folder"):
        kltune.open_study(tmp_path)


def test_the_report_is_written_on_request(tmp_path: Path) -> None:
    path = a_study(tmp_path)
    paths = kltune.open_study(path).report()
    assert paths.html.is_file()
    assert paths.json == path / "report.json"


def test_an_export_is_that_of_the_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path / "s", [trial(0.05), trial(0.1)])
    study = kltune.open_study(path)
    run_export(ExportRequest(path, "verl"))
    with pytest.warns(UserWarning, match="learning rate"):
        text = study.export("verl", out=tmp_path / "v.yaml")
    assert text == capfd.readouterr().out
    assert (tmp_path / "v.yaml").read_text(encoding="utf-8") == text


def test_tables_are_exported_into_a_folder(tmp_path: Path) -> None:
    study = kltune.open_study(a_study(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert study.export("parquet", out=tmp_path / "t") == str(tmp_path / "t")
    back = pd.read_parquet(tmp_path / "t" / "trials.parquet").set_index("trial")
    assert list(back["value"].dropna()) == list(study.trials["value"].dropna())


def test_errors_speak_of_arguments_not_of_flags(tmp_path: Path) -> None:
    study = kltune.open_study(write_study(tmp_path / "s", [trial(0.05), trial(0.1)]))
    with pytest.raises(SpecError) as caught:
        study.export("csv", max_new_tokens=8)
    message = str(caught.value)
    assert "out: needed with to csv" in message
    assert "batch, group, mean_tokens and max_new_tokens" in message


def test_a_notebook_shows_it_escaped(tmp_path: Path) -> None:
    hostile = "baseline:<script>alert(1)</script>"
    path = write_study(tmp_path / "<i>s", [trial(0.05, origin=hostile), trial(0.1)])
    shown = kltune.open_study(path)._repr_html_()
    assert "<script>" not in shown
    assert "<i>" not in shown
    assert "&lt;script&gt;" in shown
    assert shown.count("<table") == shown.count("</table>") == 1


@pytest.mark.parametrize("number", [99, -1, True, "a", 1.5, None])
def test_a_trial_that_is_not_there_is_told_with_those_that_are(tmp_path: Path, number: Any) -> None:
    study = kltune.open_study(write_study(tmp_path / "s", [trial(0.1)] * 3))
    with pytest.raises(StudyError, match=r"there is no trial .*; 0-2 are there"):
        study.curve(number)


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path_is_told_in_one_sentence(path: Any) -> None:
    with pytest.raises(SpecError, match=r"^path: must be the path of a study's folder"):
        kltune.open_study(path)
