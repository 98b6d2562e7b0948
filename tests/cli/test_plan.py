from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kltune.cli import plan as cli
from kltune.launch import plan
from kltune.launch.plan import PlanRequest

APP = typer.Typer(rich_markup_mode=None)
APP.command("plan", epilog=cli.EXAMPLE)(cli.command)


def test_every_flag_reaches_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[PlanRequest] = []
    monkeypatch.setattr(plan, "run_plan", lambda request: seen.append(request) or 0)
    flags = "s.yaml --difference 0.1 --power 0.9 --study there --json --out p.json"
    done = CliRunner().invoke(APP, flags.split())
    assert (done.exit_code, done.output) == (0, "")
    assert seen == [
        PlanRequest(Path("s.yaml"), 0.1, 0.9, Path("there"), True, Path("p.json")),
    ]


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(APP, ["--help"], env={"COLUMNS": "80"}).output
    assert "kltune plan sweeps/kitchen.yaml" in shown
    assert len(shown.splitlines()) <= 30
