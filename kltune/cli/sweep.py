"""``kltune sweep``: a spec and flags in, a study folder and its report out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags


class Place(StrEnum):
    """Where the workers are."""

    LOCAL = "local"
    RAY = "ray"


def _place(text: str) -> Place:
    if text not in set(Place):
        raise typer.BadParameter(f"must be {' or '.join(Place)} (got {text!r})")
    return Place(text)


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
            help="Trials in total; a resumed study runs the rest.",
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
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Database server that keeps the trials; no password."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the spec; repeatable."),
    ] = None,
    on: Annotated[
        Place,
        typer.Option(
            metavar="PLACE",
            parser=_place,
            show_default=False,
            help="local, or ray with --address, --gpus-per-worker.",
        ),
    ] = Place.LOCAL,
    # Named in the line above: on screens of 24 lines there is no room for each.
    address: Annotated[str | None, typer.Option(metavar="ADDRESS", hidden=True)] = None,
    gpus_per_worker: Annotated[
        float | None, typer.Option(metavar="G", parser=flags.share, hidden=True)
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

    Exit code: 0 done, 3 no feasible trial, 75 and 130 stopped and resumable.
    """
    if on is Place.LOCAL and (address is not None or gpus_per_worker is not None):
        flag = "--gpus-per-worker" if address is None else "--address"
        raise typer.BadParameter(f"{flag} is for --on ray")
    from kltune.launch.request import SweepRequest
    from kltune.launch.sweep import run_sweep

    request = SweepRequest(
        spec_path=spec,
        study_path=study,
        trials=trials,
        slots=slots,
        workers=workers,
        storage=storage,
        overrides=tuple(overrides or ()),
        fresh=fresh,
        dry_run=dry_run,
        seed=seed,
        as_json=as_json,
    )
    if on is Place.RAY and not dry_run:
        from kltune.launch.ray_sweep import ClusterRequest, run_on_ray

        raise typer.Exit(run_on_ray(request, ClusterRequest(address, gpus_per_worker)))
    raise typer.Exit(run_sweep(request))
