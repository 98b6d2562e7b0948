from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kltune.cli import convert as cli_convert
from kltune.export.target import Sizes
from kltune.launch import convert
from kltune.launch.convert import ConvertRequest

app = typer.Typer()
app.command("convert", epilog=cli_convert.EXAMPLE)(cli_convert.command)


def test_every_flag_reaches_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ConvertRequest] = []
    monkeypatch.setattr(convert, "run_convert", lambda request: seen.append(request) or 0)
    args = "c.yaml --from verl --to trl --from-version 0.8.0 --to-version 1.9.0 --sigma .5 "
    args += "--mean-tokens 12.5 --batch 64 --group 8 --max-new-tokens 96 --out there --force"
    done = CliRunner().invoke(app, args.split())
    assert (done.exit_code, done.output) == (0, "")
    assert seen == [
        ConvertRequest(
            config=Path("c.yaml"),
            framework="verl",
            to="trl",
            from_version="0.8.0",
            to_version="1.9.0",
            sigma=0.5,
            sizes=Sizes(64, 8, 12.5, 96),
            out=Path("there"),
            force=True,
        )
    ]


@pytest.mark.parametrize(
    "args", ["", "c", "c --from verl", "c --to trl", "c --from verl --to trl --batch 0"]
)
def test_a_bad_flag_is_exit_2(args: str) -> None:
    assert CliRunner().invoke(app, args.split()).exit_code == 2


def test_help_fits_24_lines_and_shows_an_example() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert "Example: kltune convert --from verl run_grpo.sh --to trl" in shown


def test_a_file_goes_through_the_program(tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text("GRPOConfig(beta=0.04)\n", encoding="utf-8")
    done = CliRunner().invoke(
        app, [str(path), "--from", "trl", "--to", "verl", "--out", str(tmp_path / "o")]
    )
    assert done.exit_code == 0
    assert "kl_loss_coef: 0.04" in (tmp_path / "o").read_text(encoding="utf-8")
