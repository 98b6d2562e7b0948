from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import minimal, write
from typer.testing import CliRunner

from kltune.cli import app
from kltune.launch import audit
from kltune.launch.audit import AuditRequest


def test_every_flag_reaches_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AuditRequest] = []
    monkeypatch.setattr(audit, "run_audit", lambda request: seen.append(request) or 0)
    flags = "--trial 7 --checkpoint last --samples 256 --seed 3 --out there --json --steps 4"
    args = ["audit", str(tmp_path), *flags.split(), "--reference", "ref", "--prompts", "p.txt"]
    done = CliRunner().invoke(app, args)
    assert (done.exit_code, done.output) == (0, "")
    assert seen == [
        AuditRequest(
            target=tmp_path,
            steps=4,
            trial=7,
            checkpoint="last",
            reference=Path("ref"),
            prompts=Path("p.txt"),
            samples=256,
            seed=3,
            out=Path("there"),
            as_json=True,
        )
    ]


@pytest.mark.parametrize("args", ["--steps 0", "--samples x", "--checkpoint first", "--seed -1"])
def test_a_bad_flag_is_exit_2(tmp_path: Path, args: str) -> None:
    path = write(tmp_path, minimal())
    assert CliRunner().invoke(app, ["audit", str(path), *args.split()]).exit_code == 2


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(app, ["audit", "--help"], env={"COLUMNS": "80"}).output
    assert "kltune audit sweeps/kitchen.yaml" in shown
    assert len(shown.splitlines()) <= 45
