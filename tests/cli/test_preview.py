from __future__ import annotations

from pathlib import Path

import pytest
import typer
from spec_files import minimal, write
from typer.testing import CliRunner

from kltune.cli import preview
from kltune.errors import ExitCode
from kltune.launch import preview as launch

APP = typer.Typer()
APP.command(epilog=preview.EXAMPLE)(preview.command)


def test_every_flag_reaches_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[launch.PreviewRequest] = []

    def run(request: launch.PreviewRequest) -> ExitCode:
        seen.append(request)
        return ExitCode.DONE

    monkeypatch.setattr(launch, "run_preview", run)
    path = write(tmp_path, minimal())
    flags = [
        "--samples",
        "32",
        "--prompts",
        "8",
        "--seed",
        "3",
        "--out",
        "there",
        "--write",
        "--json",
    ]
    result = CliRunner().invoke(APP, [str(path), *flags])
    assert result.exit_code == 0, result.output
    assert seen == [launch.PreviewRequest(path, 32, 8, 3, Path("there"), write=True, as_json=True)]


@pytest.mark.parametrize(
    ("flag", "value"), [("--samples", "0"), ("--prompts", "x"), ("--seed", "-1")]
)
def test_a_bad_number_names_its_flag(tmp_path: Path, flag: str, value: str) -> None:
    result = CliRunner().invoke(APP, [str(tmp_path), flag, value])
    assert result.exit_code == 2
    assert flag in result.output


def test_help_fits_a_screen_and_shows_an_example() -> None:
    result = CliRunner().invoke(APP, ["--help"], env={"COLUMNS": "80"})
    assert "Example: kltune preview sweeps/kitchen.yaml" in result.output
    assert len(result.output.splitlines()) <= 40
