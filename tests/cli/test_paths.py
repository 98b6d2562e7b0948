from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kltune.cli import app


@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "s.yaml", "--study", "postgresql://u:geheim@h/x"],
        ["ls", ".", "postgresql:/u:geheim@h/x"],
        ["task", "new", "https://u:geheim@h/x"],
        ["status", "http://u:geheim@h/x"],
    ],
    ids=lambda words: words[0],
)
def test_an_address_in_the_place_of_a_path_is_a_wrong_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "must be a path, not an address" in " ".join(done.output.split())
    assert "geheim" not in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a:b", "C:/x", "x/a:/b"])
def test_a_path_with_a_colon_is_a_path(name: str) -> None:
    done = CliRunner().invoke(app, ["status", name])
    assert "not an address" not in done.output
