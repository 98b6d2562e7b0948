from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kltune.cli import app
from tests.standing_case import write_study, write_trial


def test_studies_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_trial(write_study(Path("studies/a")), 0, ending={}, last=1e9)
    write_study(Path("more/b"))
    done = CliRunner().invoke(app, ["ls"])
    assert done.exit_code == 0, done.output
    assert "studies/a" in done.stdout
    done = CliRunner().invoke(app, ["ls", "studies", "more", "--json"])
    found = [row["study"] for row in json.loads(done.stdout)["studies"]]
    assert found == ["studies/a", "more/b"]
