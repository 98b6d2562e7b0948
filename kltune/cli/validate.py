"""``kltune validate``: a study in, the go / no-go before the big run out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete

EXAMPLE = "Example: kltune validate studies/kitchen-grpo"


def command(
    study: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY", autocompletion=complete.studies, help="The study's folder."
        ),
    ],
    no_gold: Annotated[
        bool,
        typer.Option("--no-gold", help="Don't run the gold function on kept completions again."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Judge whether a study's answer may be scaled up: go, go with warnings, no-go.

    Exit code 4 where a check fails. Looks at no test prompt that kltune confirm did
    not look at.
    """
    from kltune.launch.validate import ValidateRequest, run_validate

    raise typer.Exit(run_validate(ValidateRequest(study, not no_gold, as_json)))
