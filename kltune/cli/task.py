"""``kltune task``: built-in tasks listed, a new one made, scorers tried; built-in weights rebuilt from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kltune.cli import complete, flags

app = typer.Typer(
    help="Tasks: what is learned and judged.",
    no_args_is_help=True,
    epilog="Example: kltune task new mytask",
)


@app.command("list", epilog="Example: kltune task list")
def list_command(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list as JSON on stdout.")
    ] = False,
) -> None:
    """List the built-in tasks: their sizes, and what they measure."""
    from kltune.launch.task_list import run_task_list

    raise typer.Exit(run_task_list(as_json=as_json))


@app.command("new", epilog="Example: kltune task new mytask --kind verl")
def new_command(
    name: Annotated[
        Path, typer.Argument(metavar="NAME", help="Of the task; a folder NAME is made.")
    ],
    kind: Annotated[
        Literal["function", "verl", "model"],
        typer.Option(
            help="The reward: TRL's signature, verl's compute_score, or a model that learns it."
        ),
    ] = "function",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON on stdout.")
    ] = False,
) -> None:
    """Make a task of your own: prompts, rewards and a spec that runs at once."""
    from kltune.launch.task_new import NewTask, run_task_new

    raise typer.Exit(run_task_new(NewTask(name, kind, as_json)))


@app.command("test", epilog="Example: kltune task test mytask/spec.yaml -n 4")
def try_command(
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC", autocompletion=complete.specs, help="YAML file."),
    ],
    completions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Completions: .jsonl, or one a line.  [default: harmless texts]"
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "-n", metavar="N", parser=flags.count, help="Completions at most.  [default: 8]"
        ),
    ] = 8,
    draw: Annotated[
        bool, typer.Option("--draw", help="Draw the completions from the model.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the spec; repeatable."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Score a few completions with proxy and gold: scores, milliseconds, errors.

    Exit code 4 where a scorer fails.
    """
    if draw and completions is not None:
        raise typer.BadParameter("not with --draw: give one of them", param_hint="--completions")
    from kltune.launch.task_try import TryRequest, run_task_try

    given = TryRequest(spec, completions, count, draw, tuple(overrides or ()), as_json)
    raise typer.Exit(run_task_try(given))


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
