from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kltune.cli import transfer as cli_transfer
from kltune.launch import transfer
from kltune.launch.transfer import TransferRequest

app = typer.Typer()
app.command("transfer", epilog=cli_transfer.EXAMPLE)(cli_transfer.command)


def test_every_flag_reaches_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TransferRequest] = []
    monkeypatch.setattr(transfer, "run_transfer", lambda request: seen.append(request) or 0)
    args = ["a", "b", "--parameters", "100,2000", "--seed", "3", "--out", "there", "--json"]
    done = CliRunner().invoke(app, args)
    assert (done.exit_code, done.output) == (0, "")
    assert seen == [TransferRequest((Path("a"), Path("b")), (100, 2000), 3, Path("there"), True)]


@pytest.mark.parametrize(
    "args", ["a b --parameters x,3", "a b --parameters 0,3", "a b --seed -1", ""]
)
def test_a_bad_flag_is_exit_2(args: str) -> None:
    assert CliRunner().invoke(app, args.split()).exit_code == 2


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert "kltune transfer studies/kitchen-grpo-small" in shown
    assert len(shown.splitlines()) <= 45
