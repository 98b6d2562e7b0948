from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from kltune.metrics.env import environment, write_env
from kltune.metrics.jsonl import read_json


def test_env_json_names_versions_and_hardware(tmp_path: Path) -> None:
    write_env(tmp_path, {"kind": "cpu"})
    env = read_json(tmp_path / "env.json")
    assert env["packages"]["torch"].startswith("2.")
    assert env["cpus"] >= 1
    assert env["memory_gib"] > 0
    assert env["device"] == {"kind": "cpu"}


def test_env_json_names_no_person_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "S3CRET")
    text = json.dumps(environment({"cache": str(Path.home() / "models")}))
    assert "S3CRET" not in text
    assert socket.gethostname() not in text
    assert str(Path.home()) + os.sep not in text
    assert f'"{getpass.getuser()}"' not in text


def test_outside_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment({})["git"] is None


def test_a_changed_file_makes_the_commit_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        names = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.chdir(tmp_path)
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "a")
    clean = environment({})["git"]
    (tmp_path / "a").write_text("2")
    dirty = environment({})["git"]
    assert isinstance(clean, dict)
    assert isinstance(dirty, dict)
    assert len(clean["commit"]) == 40
    assert (clean["dirty"], dirty["dirty"]) == (False, True)
