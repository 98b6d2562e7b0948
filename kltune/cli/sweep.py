"""``kltune sweep``: a spec and flags in, a study folder and its report out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune sweep sweeps/kitchen.yaml --trials 8 --set trainer.steps=40"


def command(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", autocompletion=complete.specs, help="YAML file, see sweeps/."
        ),
    ],
    study: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            autocompletion=complete.studies,
            help="Study folder.  [default: studies/<name>]",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=flags.count,
            help="Trials in total, 1 or more; a resumed study runs the rest.",
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            parser=flags.count,
            help="Trials that train at once, 1 or more.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="W", parser=flags.count, help="Processes that share them; each has a bank."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the spec; repeatable."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Move an old study aside and start anew.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, start nothing.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="S", parser=flags.seed, help="Root of every random number, 0 or more."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Run the trials of SPEC; the same command again resumes.

    Exit code: 0 done, 2 bad spec or flag (nothing started), 3 no feasible trial, 75 terminated
    and 130 interrupted (both resumable), 1 error, 5 this machine can't.
    """
    from kltune.launch.request import SweepRequest
    from kltune.launch.sweep import run_sweep

    request = SweepRequest(
        spec_path=spec,
        study_path=study,
        trials=trials,
        slots=slots,
        workers=workers,
        overrides=tuple(overrides or ()),
        fresh=fresh,
        dry_run=dry_run,
        seed=seed,
        as_json=as_json,
    )
    raise typer.Exit(run_sweep(request))
