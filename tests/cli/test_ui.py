from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from fake_study import trial, write_study
from typer.testing import CliRunner

from kltune.cli import app


def kltune(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kltune", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(app, ["ui", "--help"]).output.splitlines()
    assert len(shown) <= 24
    assert max(len(line) for line in shown) <= 80
    assert sum(line.strip().startswith("Example: kltune ui") for line in shown) == 1


def test_a_folder_that_is_no_study_is_a_mistake_of_use(tmp_path: Path) -> None:
    done = kltune("ui", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds no study" in done.stderr


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    study = write_study(tmp_path, [trial(0.1)])
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = kltune("ui", str(study), "--optuna-port", str(port))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--optuna-port: port {port} of 127.0.0.1 is in use" in done.stderr
