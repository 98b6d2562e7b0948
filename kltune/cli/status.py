"""``kltune status``: a study in, where it stands out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete

EXAMPLE = "Example: kltune status studies/kitchen-grpo"


def command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY",
            autocompletion=complete.specs_and_studies,
            help="The study's folder, or its spec.",
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Say where STUDY stands: running or not, trials, time left, best so far, next command.

    Reads files only: a running sweep is not disturbed, nothing is written. Exit code:
    0 told, 2 no study there.
    """
    from kltune.launch.status import StatusRequest, run_status

    raise typer.Exit(run_status(StatusRequest(target, as_json)))
