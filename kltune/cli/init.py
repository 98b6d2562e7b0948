"""``kltune init``: a few answers in, a commented spec that runs out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete

EXAMPLE = "Example: kltune init mine/spec.yaml --model ./my-model"


def command(
    spec: Annotated[
        Path, typer.Argument(metavar="FILE", help="The spec to write.", show_default=True)
    ] = Path("spec.yaml"),
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete.words("kitchen", "everyday", "own"),
            help="kitchen or everyday (built in), or own.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="M", help="A folder, a hub id, package:NAME or builtin:NAME."),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(metavar="P", help="Your .jsonl or .txt; absent: examples are made."),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(metavar="F", help="Your judgement, rewards.py:gold; absent: an example."),
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="F", help="Your reward, rewards.py:proxy; or learned.")
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="A",
            autocompletion=complete.words("grpo", "dr-grpo", "rloo", "reinforce", "ppo"),
            help="grpo, dr-grpo, rloo, reinforce or ppo.",
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Wall clock of one sweep.")
    ] = None,
    source: Annotated[
        tuple[str, Path] | None,
        typer.Option(
            "--from",
            metavar="TRAINER CONFIG",
            help="Your config of trl, verl, openrlhf or nemo-rl.",
        ),
    ] = None,
    version: Annotated[
        str | None, typer.Option("--from-version", metavar="X", help="Release CONFIG is for.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Write a spec, every line explained; asks a terminal what flags don't say.

    Exit code: 0 written, 2 refused, 130 interrupted (then nothing is written).
    """
    from kltune.launch.init import InitRequest, run_init

    request = InitRequest(
        spec_path=spec,
        task=task,
        model=model,
        prompts=prompts,
        gold=gold,
        proxy=proxy,
        algorithm=algorithm,
        minutes=minutes,
        source=source,
        source_version=version,
        force=force,
        as_json=as_json,
    )
    raise typer.Exit(run_init(request))
