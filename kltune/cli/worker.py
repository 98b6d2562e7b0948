"""``kltune worker``: a study and flags in, one more process that runs its trials out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune worker studies/kitchen-grpo"


def command(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            autocompletion=complete.studies,
            help="Study folder; spec (who is first makes the study); or postgresql://...#NAME.",
        ),
    ],
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Database that keeps the trials, without password."),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            "--study",
            metavar="PATH",
            autocompletion=complete.studies,
            help="Study folder of a spec or URL.",
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            metavar="K", parser=flags.count, help="Trials that this process trains at once."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace what is free to change."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the study's result as JSON on stdout.")
    ] = False,
) -> None:
    """Work on a study beside `kltune sweep` or alone; on any machine that sees its folder.

    Exit code: as `kltune sweep`; 75 after SIGTERM and 130 after Ctrl-C, trials saved.
    """
    from kltune.launch.join import run_join
    from kltune.launch.request import JoinRequest

    request = JoinRequest(
        target=study,
        storage=storage,
        study_path=path,
        slots=slots,
        overrides=tuple(overrides or ()),
        as_json=as_json,
    )
    raise typer.Exit(run_join(request))
