"""The README shows what the commands and the tree really are. `make docs` writes the help texts anew."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from kltune.cli import SECTIONS, app
from kltune.spec.load import load_spec

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COMMANDS = re.compile(r"<!-- commands -->\n(.*?)<!-- end of commands -->\n", re.DOTALL)


def every_command() -> list[str]:
    """All commands in the order of the help; one that only has subcommands is followed by them."""
    found: list[str] = []
    tree = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    for name in (name for lines in SECTIONS.values() for name in lines):
        found.append(f"kltune {name}")
        found += [f"kltune {name} {inner}" for inner in getattr(tree[name], "commands", {})]
    return found


def help_text(command: str) -> str:
    """What ``command --help`` prints on a terminal of 80 columns."""
    runner = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    result = runner.invoke(app, [*shlex.split(command)[1:], "--help"], prog_name="kltune")
    assert result.exit_code == 0, result.output
    return result.stdout


def commands_part() -> str:
    """The README's part on commands: a table, then every help text."""
    rows = ["| Command | What it does |", "|---|---|"]
    for title, lines in SECTIONS.items():
        rows.append(f"| **{title}** | |")
        rows += [f"| `kltune {name}` | {text} |" for name, text in lines.items()]
    blocks = [
        f"```text\n$ {name} --help\n{help_text(name).strip()}\n```" for name in every_command()
    ]
    shown = ["<details>", "<summary>Every help text</summary>", "", *blocks, "", "</details>"]
    return "\n".join([*rows, "", *shown, ""])


def with_commands(readme: str) -> str:
    assert len(COMMANDS.findall(readme)) == 1
    return COMMANDS.sub(
        lambda _: f"<!-- commands -->\n{commands_part()}<!-- end of commands -->\n", readme
    )


def test_help_texts_are_those_of_the_commands() -> None:
    readme = README.read_text(encoding="utf-8")
    if os.environ.get("KLTUNE_WRITE_DOCS"):
        README.write_text(with_commands(readme), encoding="utf-8")
    assert README.read_text(encoding="utf-8") == with_commands(readme), "run `make docs`"


@pytest.mark.parametrize("command", ["kltune", *every_command()])
def test_each_help_fits_a_screen_and_shows_an_example(command: str) -> None:
    lines = help_text(command).splitlines()
    assert len(lines) <= (40 if command == "kltune" else 24)  # the list of commands is longer
    assert max(map(len, lines)) <= 80
    assert sum("Example: kltune " in line for line in lines) == 1


def test_the_example_in_python_is_the_one_that_is_run() -> None:
    import kltune.api

    code = str(kltune.api.__doc__).split("```python\n")[1].split("```")[0]
    assert f"```python\n{code}```" in README.read_text(encoding="utf-8")


def test_every_path_of_the_where_is_what_table_exists() -> None:
    section = README.read_text(encoding="utf-8").split("## Where is what")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15
    missing = [p for row in rows for p in re.findall(r"`([^`]+)`", row) if not (ROOT / p).exists()]
    assert missing == []


def test_the_example_spec_and_its_files_are_accepted(tmp_path: Path) -> None:
    section = README.read_text(encoding="utf-8").split("## Your own model")[1].split("\n## ")[0]
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
