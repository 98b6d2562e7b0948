from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kltune.cli import app as whole_app
from kltune.cli import export as cli_export
from kltune.export.target import Sizes
from kltune.launch import export
from kltune.launch.export import TARGETS, ExportRequest

app = typer.Typer()
app.command("export", epilog=cli_export.EXAMPLE)(cli_export.command)


def test_every_flag_reaches_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ExportRequest] = []
    monkeypatch.setattr(export, "run_export", lambda request: seen.append(request) or 0)
    args = "s --to tripwire --trial 3 --version 0.9.0 --framework verl --batch 64 --group 8 "
    args += "--mean-tokens 12.5 --max-new-tokens 32 --out there"
    done = CliRunner().invoke(app, args.split())
    assert (done.exit_code, done.output) == (0, "")
    assert seen == [
        ExportRequest(
            study_path=Path("s"),
            to="tripwire",
            trial=3,
            version="0.9.0",
            framework="verl",
            sizes=Sizes(64, 8, 12.5, 32),
            out=Path("there"),
        )
    ]


def test_what_is_left_out_is_left_to_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ExportRequest] = []
    monkeypatch.setattr(export, "run_export", lambda request: seen.append(request) or 0)
    assert CliRunner().invoke(app, ["s", "--to", "trl"]).exit_code == 0
    assert seen == [ExportRequest(Path("s"), "trl")]


@pytest.mark.parametrize(
    "args",
    ["s", "--to trl", "s --to trl --batch 0", "s --to trl --trial x", "s --to trl --group -1"],
)
def test_a_bad_flag_is_exit_2(args: str) -> None:
    assert CliRunner().invoke(app, args.split()).exit_code == 2


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(whole_app, ["export", "--help"], env={"COLUMNS": "80"}).output
    assert "kltune export studies/kitchen-grpo --to verl" in shown
    assert all(name in shown for name in TARGETS)
    assert len(shown.splitlines()) <= 24
