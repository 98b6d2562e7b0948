"""``kltune task``: built-in tasks by name; their weights are rebuilt from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kltune.cli import flags

app = typer.Typer(
    help="Built-in tasks.", no_args_is_help=True, epilog="Example: kltune task rebuild kitchen"
)


@app.command("rebuild", epilog="Example: kltune task rebuild kitchen --size large --out /tmp/it")
def rebuild_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Built-in task: kitchen.")],
    size: Annotated[
        Literal["small", "medium", "large"],
        typer.Option(help="Of the base; with medium the proxy is made too."),
    ] = "medium",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to.  [default: into the package]"),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="S", parser=flags.seed, help="Root of every random number, 0 or more."
        ),
    ] = 0,
) -> None:
    """Train the base of a built-in task anew, and its proxy (minutes)."""
    if name != "kitchen":
        raise typer.BadParameter(
            f"{name!r} is not a built-in task; built in: kitchen", param_hint="NAME"
        )
    from kltune.rebuild.kitchen import rebuild
    from kltune.tasks.kitchen.task import WEIGHTS

    folder = WEIGHTS if out is None else out
    rebuild(folder, seed, size)
    typer.echo(f"wrote {folder}")
