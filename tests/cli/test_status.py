from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from kltune.cli import app
from tests.standing_case import write_study, write_trial


def test_a_study_s_standing_is_printed(tmp_path: Path) -> None:
    write_trial(write_study(tmp_path), 0, ending={}, last=1e9)
    done = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("kitchen: stopped")
    done = CliRunner().invoke(app, ["status", str(tmp_path), "--json"])
    assert json.loads(done.stdout)["state"] == "stopped"
