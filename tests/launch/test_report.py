"""One study's report lies in its folder, a comparison in one of its own; nothing else is overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from versus_case import a_study, two

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.report import ReportRequest, comparison_name, run_report


def test_one_study_is_reported_in_its_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = a_study(tmp_path / "s")
    assert run_report(ReportRequest((path,))) is ExitCode.DONE
    names = ("report.html", "report.md", "report.json")
    assert capfd.readouterr().out.splitlines() == [str(path / name) for name in names]
    assert run_report(ReportRequest((path,), as_json=True)) is ExitCode.DONE
    assert json.loads(capfd.readouterr().out)["study"] == "kitchen"


def test_several_are_compared_in_a_folder_of_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    low, high = two(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run_report(ReportRequest((low, high), as_json=True)) is ExitCode.DONE
    folder = tmp_path / "studies" / "compare" / "low-high"
    data = json.loads(capfd.readouterr().out)
    assert data == json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert data["headline"] in (folder / "report.md").read_text(encoding="utf-8")
    assert "low against high" in (folder / "report.html").read_text(encoding="utf-8")
    assert not (low / "report.html").exists()


def test_the_order_of_the_studies_is_kept_and_a_second_run_replaces(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    out = tmp_path / "deep" / "out"
    for paths in ((low, high), (high, low)):
        assert run_report(ReportRequest(paths, out)) is ExitCode.DONE
    assert "high against low" in (out / "report.md").read_text(encoding="utf-8")
    assert len(list(out.iterdir())) == 3


def test_folders_that_are_not_its_own_are_refused(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    with pytest.raises(SpecError, match="is a study: its own report would be lost"):
        run_report(ReportRequest((low, high), low))
    with pytest.raises(SpecError, match="only with two studies or more"):
        run_report(ReportRequest((low,), tmp_path / "x"))
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SpecError, match="can't be written to"):
        run_report(ReportRequest((low, high), tmp_path / "file"))


def test_studies_that_cant_be_compared_leave_nothing(tmp_path: Path) -> None:
    low, _ = two(tmp_path)
    objective = {"metric": "gold_final", "kl_limit": 0.5}
    other = a_study(tmp_path / "other", objective=objective)
    with pytest.raises(SpecError, match="can't be compared"):
        run_report(ReportRequest((low, other), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_place_that_fails_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = two(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(RunError, match="No space left on device"):
        run_report(ReportRequest((low, high), tmp_path / "out"))


def test_names_are_safe_for_a_folder(tmp_path: Path) -> None:
    name = comparison_name([tmp_path / "a" / "s", tmp_path / "b" / "s"])
    assert name == "a_s-b_s"
    long = comparison_name([tmp_path / ("x" * 100), tmp_path / ("y" * 100)])
    assert len(long) <= 120
