from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kltune.cli import app as whole_app
from kltune.cli import main
from kltune.cli import report as cli_report
from kltune.launch import report
from kltune.launch.report import ReportRequest

app = typer.Typer()
app.command("report", epilog=cli_report.EXAMPLE)(cli_report.command)


def test_a_folder_that_is_no_study_is_one_message_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kltune", "report", str(tmp_path)])
    with pytest.raises(SystemExit) as exit_:
        main()
    shown = capsys.readouterr()
    assert exit_.value.code == 2
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert str(tmp_path) in shown.err


def test_every_flag_reaches_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ReportRequest] = []
    monkeypatch.setattr(report, "run_report", lambda request: seen.append(request) or 0)
    for args in ("a", "a b c --out there --json"):
        assert CliRunner().invoke(app, args.split()).exit_code == 0
    several = tuple(map(Path, "abc"))
    assert seen == [ReportRequest((Path("a"),)), ReportRequest(several, Path("there"), True)]


def test_no_study_is_exit_2() -> None:
    assert CliRunner().invoke(app, []).exit_code == 2


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(whole_app, ["report", "--help"], env={"COLUMNS": "80"}).output
    assert "kltune report studies/kitchen-grpo studies/" in shown
    assert len(shown.splitlines()) <= 24
