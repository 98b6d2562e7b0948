"""``kltune confirm``: a study in, whether its recommendation holds on fresh seeds and unseen prompts out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune confirm studies/kitchen-grpo --top 3 --seeds 10"


def command(
    study: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY", autocompletion=complete.studies, help="Study folder that has ended."
        ),
    ],
    top: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=flags.count,
            help="Best settings of the search; the study's baselines come on top.",
        ),
    ] = 3,
    seeds: Annotated[
        int,
        typer.Option(metavar="S", parser=flags.count, help="Fresh seeds per setting, 3 or more."),
    ] = 10,
    gold: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:F", help="A second gold, on the same completions."),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="Exit 4 unless it holds: 'gold > baseline', 'gold > start', 'winner stays', 'winner not beaten'.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run and how long; start nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Train the winner, its rivals and the known recipes anew; judge on test prompts.

    The same command goes on where it was interrupted. Every look at the test prompts is noted in the study.
    """
    from kltune.launch.confirm import ConfirmRequest, run_confirm

    request = ConfirmRequest(
        study_path=study,
        top=top,
        seeds=seeds,
        gold=gold,
        require=tuple(require or ()),
        dry_run=dry_run,
        as_json=as_json,
    )
    raise typer.Exit(run_confirm(request))
