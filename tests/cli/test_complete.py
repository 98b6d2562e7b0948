from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kltune.cli import complete

# typer itself reads arguments by pydantic; nothing else may load.
BASH = """
import sys
from kltune.cli import app
try:
    app(prog_name="kltune")
finally:
    heavy = {"torch", "optuna", "mlflow", "rich", "numpy", "ruamel"} & set(sys.modules)
    sys.stderr.write(" ".join(sorted(heavy)))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("studies/one", "studies/group/two", "other/three"):
        Path(name).mkdir(parents=True)
        (Path(name) / "resolved.json").touch()
    Path("studies/empty").mkdir()
    for number in (0, 1, 10, 11):
        Path(f"studies/one/trials/{number:05d}").mkdir(parents=True)
    Path("sweeps").mkdir()
    for name in ("sweeps/beta.yaml", "sweeps/notes.md", "mine.yaml", "other/deep.yml"):
        Path(name).touch()
    return tmp_path


def bash(line: str) -> tuple[list[str], str]:
    """What bash is told to complete the last word of ``line`` to, and the heavy modules it took."""
    count = len(line.split(" ")) - 1
    done = subprocess.run(
        [sys.executable, "-c", BASH],
        env={**os.environ, "COMP_WORDS": line, "COMP_CWORD": str(count),
             "_KLTUNE_COMPLETE": "complete_bash"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kltune swe", ["sweep"]),
        ("kltune sweep ", ["mine.yaml", "sweeps/beta.yaml"]),
        ("kltune check sweeps/b", ["sweeps/beta.yaml"]),
        ("kltune plan other/", ["other/deep.yml"]),
        ("kltune validate studies/", ["studies/group/two", "studies/one"]),
        ("kltune confirm other/t", ["other/three"]),
        ("kltune status s", ["sweeps/beta.yaml", "studies/group/two", "studies/one"]),
        ("kltune replay studies/one --trial 1", ["1", "10", "11"]),
        ("kltune export studies/one --to verl --trial 1", ["1", "10", "11"]),
        ("kltune export studies/one --to v", ["verl"]),
        ("kltune init --algorithm r", ["rloo", "reinforce"]),
        ("kltune replay studies/absent --trial ", []),
        ("kltune validate nowhere/x", []),
    ],
)
def test_the_shell_is_given_what_fits_and_nothing_heavy_is_loaded(
    line: str, words: list[str]
) -> None:
    assert bash(line) == (words, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_each_shell_can_be_shown(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kltune", "--show-completion", shell],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "_KLTUNE_COMPLETE" in done.stdout


def test_a_folder_that_can_not_be_read_gives_nothing_and_no_error(here: Path) -> None:
    (here / "studies/one/trials").rename(here / "gone")
    assert complete.studies("absent/") == []
    assert complete.specs("\0") == []
    assert complete.words("a", "ab", "b")("a") == ["a", "ab"]


def test_links_are_not_followed(here: Path) -> None:
    (here / "studies/link").symlink_to(here / "other", target_is_directory=True)
    assert complete.studies("studies/l") == []
