from __future__ import annotations

from pathlib import Path

import pytest
import typer
from spec_files import minimal, write
from typer.testing import CliRunner

from kltune.cli import check
from kltune.errors import ExitCode
from kltune.launch import check as launch

APP = typer.Typer()
APP.command(epilog=check.EXAMPLE)(check.command)


def test_every_flag_reaches_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[launch.CheckRequest] = []

    def run(request: launch.CheckRequest) -> ExitCode:
        seen.append(request)
        return ExitCode.GATE_FAILED

    monkeypatch.setattr(launch, "run_check", run)
    path = write(tmp_path, minimal())
    flags = ["--samples", "48", "--set", "seed=3", "--set", "kl_unit=token", "--json"]
    result = CliRunner().invoke(APP, [str(path), *flags])
    assert result.exit_code == 4, result.output
    assert seen == [launch.CheckRequest(path, 48, ("seed=3", "kl_unit=token"), as_json=True)]


def test_a_bad_number_names_its_flag(tmp_path: Path) -> None:
    result = CliRunner().invoke(APP, [str(tmp_path), "--samples", "0"])
    assert result.exit_code == 2
    assert "--samples" in result.output


def test_help_fits_a_screen_and_shows_an_example() -> None:
    result = CliRunner().invoke(APP, ["--help"], env={"COLUMNS": "80"})
    assert "Example: kltune check sweeps/kitchen.yaml" in result.output
    assert len(result.output.splitlines()) <= 40
