"""The README shows what the commands and the tree really are. `make docs` writes the help texts anew."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kltune.cli import app
from kltune.spec.load import load_spec

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"<!-- help: (kltune[a-z -]*) -->\n(.*?)<!-- end of help -->", re.DOTALL)


def help_text(command: str) -> str:
    """What ``command --help`` prints on a terminal of 80 columns."""
    runner = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    result = runner.invoke(app, [*shlex.split(command)[1:], "--help"], prog_name="kltune")
    assert result.exit_code == 0, result.output
    return result.stdout


def with_help(readme: str) -> str:
    return BLOCK.sub(
        lambda m: (
            f"<!-- help: {m[1]} -->\n```text\n{help_text(m[1]).strip()}\n```\n<!-- end of help -->"
        ),
        readme,
    )


def test_help_texts_are_those_of_the_commands() -> None:
    readme = README.read_text(encoding="utf-8")
    assert len(BLOCK.findall(readme)) == 14
    if os.environ.get("KLTUNE_WRITE_DOCS"):
        README.write_text(with_help(readme), encoding="utf-8")
    assert README.read_text(encoding="utf-8") == with_help(readme), "run `make docs`"


@pytest.mark.parametrize(
    "command",
    [
        "kltune",
        "kltune check",
        "kltune preview",
        "kltune plan",
        "kltune sweep",
        "kltune confirm",
        "kltune validate",
        "kltune transfer",
        "kltune report",
        "kltune export",
        "kltune audit",
        "kltune diagnose",
        "kltune replay",
        "kltune explain",
        "kltune explain kl",
        "kltune explain estimators",
        "kltune explain controller",
        "kltune explain units",
        "kltune task",
        "kltune task rebuild",
    ],
)
def test_each_help_fits_a_screen_and_shows_an_example(command: str) -> None:
    lines = help_text(command).splitlines()
    assert len(lines) <= (36 if command == "kltune" else 24)  # the list of commands is longer
    assert max(map(len, lines)) <= 80
    assert sum("Example: kltune " in line for line in lines) == 1


def test_every_path_of_the_where_is_what_table_exists() -> None:
    section = README.read_text(encoding="utf-8").split("## Where is what")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15
    missing = [p for row in rows for p in re.findall(r"`([^`]+)`", row) if not (ROOT / p).exists()]
    assert missing == []


def test_the_example_spec_and_its_files_are_accepted(tmp_path: Path) -> None:
    section = README.read_text(encoding="utf-8").split("## Your own model")[1]
    blocks = dict(re.findall(r"```(yaml|json|python)\n(.*?)```", section, re.DOTALL))
    spec_path = tmp_path / "spec.yaml"
    spec_path.write_text(blocks["yaml"], encoding="utf-8")
    spec = load_spec(spec_path).spec
    assert spec.search.beta.zero

    functions: dict[str, object] = {}
    exec(blocks["python"], functions)
    gold, proxy = functions["gold"], functions["proxy"]
    assert callable(gold)
    assert callable(proxy)
    completions = ["about 8 minutes", "never"]
    assert gold(completions=completions, minutes=[8, 8], prompts=["", ""]) == [1.0, 0.0]
    assert proxy(completions=completions, minutes=[8, 8], prompts=["", ""]) == [0.15, 0.05]


def test_exit_codes_are_those_of_the_code() -> None:
    from kltune.errors import ExitCode

    section = README.read_text(encoding="utf-8").split("## Exit codes")[1].split("\n## ")[0]
    shown = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    assert shown == {int(code) for code in ExitCode}
