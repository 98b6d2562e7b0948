"""``kltune check``: a spec in, whether everything beneath its numbers is sound out, before any training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune check sweeps/kitchen.yaml"


def command(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", autocompletion=complete.specs, help="YAML file, see sweeps/."
        ),
    ],
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=flags.count,
            help="Completions that are drawn for it.  [default: 64]",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the spec; repeatable."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Check tokens, masks, log-probs, KL, scorers and splits before any training.

    Exit code 4 where a check fails, 0 on warnings. Writes nothing.
    """
    from kltune.launch.check import CheckRequest, run_check

    raise typer.Exit(run_check(CheckRequest(spec, samples, tuple(overrides or ()), as_json)))
