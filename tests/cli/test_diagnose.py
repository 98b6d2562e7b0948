from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from kltune.cli import diagnose as cli
from kltune.launch import diagnose
from kltune.launch.diagnose import DiagnoseRequest

APP = typer.Typer(rich_markup_mode=None)
APP.command("diagnose", epilog=cli.EXAMPLE)(cli.command)


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("log.jsonl", DiagnoseRequest("log.jsonl")),
        ("a b --fail-on fail", DiagnoseRequest("a", "b", fail_on="fail")),
        (
            "runs:/1f --run 3 --kl-unit sequence --mean-tokens 40 --fail-on warn --json",
            DiagnoseRequest("runs:/1f", None, "3", "sequence", 40.0, "warn", as_json=True),
        ),
    ],
)
def test_every_flag_reaches_the_request(
    monkeypatch: pytest.MonkeyPatch, flags: str, wanted: DiagnoseRequest
) -> None:
    seen: list[DiagnoseRequest] = []
    monkeypatch.setattr(diagnose, "run_diagnose", lambda request: seen.append(request) or 4)
    done = CliRunner().invoke(APP, flags.split())
    assert (done.exit_code, done.output) == (4, "")
    assert seen == [wanted]


@pytest.mark.parametrize("flags", ["--fail-on bad", "--kl-unit nats", "--mean-tokens many"])
def test_other_values_are_refused_with_exit_2(flags: str) -> None:
    assert CliRunner().invoke(APP, ["log.jsonl", *flags.split()]).exit_code == 2


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(APP, ["--help"], env={"COLUMNS": "80"}).output
    assert "kltune diagnose outputs/checkpoint-500/trainer_state.json" in " ".join(shown.split())
    assert "Exit 4" in shown
    assert len(shown.splitlines()) <= 30
