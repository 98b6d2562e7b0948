"""Flags of ``kltune confirm``."""

from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from kltune.cli import confirm
from kltune.errors import SpecError


def app() -> typer.Typer:
    made = typer.Typer(rich_markup_mode=None, context_settings={"max_content_width": 80})
    made.command("confirm", epilog=confirm.EXAMPLE)(confirm.command)
    made.callback()(lambda: None)
    return made


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(app(), ["confirm", "--help"]).output
    lines = shown.splitlines()
    assert len(lines) <= 40
    assert all(len(line) <= 80 for line in lines)
    assert "Example: kltune confirm" in shown


def test_a_count_that_is_none_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(app(), ["confirm", str(tmp_path), "--seeds", "0"])
    assert found.exit_code == 2
    assert "at least 1" in found.output


def test_a_demand_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(app(), ["confirm", str(tmp_path), "--require", "all good"])
    assert isinstance(found.exception, SpecError)
