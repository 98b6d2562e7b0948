from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kltune import __version__

HEAVY = [
    "torch",
    "transformers",
    "accelerate",
    "mlflow",
    "optuna",
    "pydantic",
    "ruamel",
    "matplotlib",
    "numpy",
    "scipy",
    "rich",
    "psutil",
]


def kltune(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kltune", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=cwd,
        env={**os.environ, **env},
    )


def test_importing_the_cli_loads_nothing_heavy() -> None:
    code = "import sys, kltune.cli; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "typer" in loaded
    assert set(loaded) & set(HEAVY) == set()


def test_help_starts_at_once() -> None:
    def start() -> float:
        begin = time.perf_counter()
        assert kltune("--help").returncode == 0
        return time.perf_counter() - begin

    # 0.3 s on a quiet machine; the best of five, with room for a busy one.
    assert min(start() for _ in range(5)) < 0.6


def test_the_version_is_printed() -> None:
    done = kltune("--version")
    assert (done.returncode, done.stdout) == (0, f"kltune {__version__}\n")


def test_no_arguments_show_the_help() -> None:
    done = kltune()
    assert done.returncode == 2
    assert "Usage: " in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["swep"], "No such command 'swep'. Did you mean 'sweep'?"),
        (["sweep"], "Missing argument 'SPEC'."),
        (["sweep", "x.yaml", "--nope"], "No such option: --nope"),
        (["sweep", "x.yaml", "--trials", "0"], "'--trials': must be a whole number of at least 1"),
        (["sweep", "x.yaml", "--slots", "0"], "'--slots': must be a whole number of at least 1"),
        (["sweep", "x.yaml", "--seed", "-1"], "'--seed': must be a whole number of at least 0"),
    ],
)
def test_a_usage_error_is_one_message_and_exit_2(args: list[str], told: str) -> None:
    done = kltune(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("Error: ") == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_no_color_is_honoured() -> None:
    done = kltune("sweep", "--help", NO_COLOR="1", FORCE_COLOR="", TERM="xterm-256color")
    assert "\x1b" not in done.stdout


ASCII = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "COLUMNS": "80"}


@pytest.mark.parametrize(
    "args", ["explain kl", "explain units --json", "explain controller", "audit --help"]
)
def test_a_terminal_without_unicode_gets_replaced_characters(args: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kltune", *args.split()],
        capture_output=True,
        check=False,
        env={**os.environ, **ASCII},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    if "--json" in args:
        assert "×" in json.dumps(json.loads(done.stdout), ensure_ascii=False)


def test_every_command_stands_in_one_section_of_the_help_and_in_order_of_use() -> None:
    from typer.main import get_command

    from kltune.cli import SECTIONS, app

    listed = [name for lines in SECTIONS.values() for name in lines]
    assert listed == list(get_command(app).commands)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


def test_the_list_of_commands_fits_a_screen_without_a_cut_sentence() -> None:
    shown = kltune("--help", COLUMNS="80").stdout
    assert len(shown.splitlines()) <= 40
    assert "..." not in shown.split("Options:")[1]
    assert max(map(len, shown.splitlines())) <= 80


def test_started_as_a_module_it_is_called_by_its_name() -> None:
    assert kltune("sweep", "--help").stdout.startswith("Usage: kltune sweep")


def test_a_path_that_is_too_long_is_one_message() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kltune", "status", "x" * 300],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: File name too long: xxx")
    assert "Traceback" not in done.stderr
