"""``kltune transfer``: studies of several model sizes in, what holds on all of them out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune transfer studies/kitchen-grpo-small studies/kitchen-grpo"


def command(
    studies: Annotated[
        list[Path],
        typer.Argument(
            metavar="STUDY...",
            autocompletion=complete.studies,
            help="Study folders: one spec, models of other sizes.",
        ),
    ],
    parameters: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Parameters of each model.  [default: counted in its files]",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(metavar="S", parser=flags.seed, help="Root of the random numbers."),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="For the results.  [default: studies/transfer/<name>]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Compare the same study on several model sizes: does its answer hold?

    Ranking of settings, best beta, KL at the gold peak, controller: each
    "transfers", "shifts by a factor" or "can't tell".
    """
    from kltune.launch.transfer import TransferRequest, run_transfer

    counts = None
    if parameters is not None:
        try:
            counts = tuple(flags.count(part) for part in parameters.split(","))
        except typer.BadParameter as error:
            error.param_hint = "--parameters"
            raise
    request = TransferRequest(
        studies=tuple(studies), parameters=counts, seed=seed, out=out, as_json=as_json
    )
    raise typer.Exit(run_transfer(request))
