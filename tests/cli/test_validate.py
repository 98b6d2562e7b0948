from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kltune.cli import validate as cli
from kltune.launch import validate
from kltune.launch.validate import ValidateRequest

APP = typer.Typer(rich_markup_mode=None)
APP.command("validate", epilog=cli.EXAMPLE)(cli.command)


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("s", ValidateRequest(Path("s"))),
        ("s --no-gold --json", ValidateRequest(Path("s"), is_gold_read=False, as_json=True)),
    ],
)
def test_every_flag_reaches_the_request(
    monkeypatch: pytest.MonkeyPatch, flags: str, wanted: ValidateRequest
) -> None:
    seen: list[ValidateRequest] = []
    monkeypatch.setattr(validate, "run_validate", lambda request: seen.append(request) or 4)
    done = CliRunner().invoke(APP, flags.split())
    assert (done.exit_code, done.output) == (4, "")
    assert seen == [wanted]


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(APP, ["--help"], env={"COLUMNS": "80"}).output
    assert "kltune validate studies/kitchen" in shown
    assert "Exit code 4" in shown
    assert len(shown.splitlines()) <= 25
