"""``kltune plan``: a spec in, what it takes to see a gold difference out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete

EXAMPLE = "Example: kltune plan sweeps/kitchen.yaml --difference 0.1"


def command(
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC", autocompletion=complete.specs, help="The spec (YAML).")
    ],
    difference: Annotated[
        float | None,
        typer.Option(metavar="D", help="Gold difference to see.  [default: a table of several]"),
    ] = None,
    power: Annotated[
        float,
        typer.Option(metavar="P", help="Chance of seeing it.  [default: 0.8]", show_default=False),
    ] = 0.8,
    study: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Study whose noise and times to use.  [default: studies/<name>, if there; else the "
            "reference is sampled, 30 s at most]",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan there, as JSON.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the plan as JSON on stdout.")
    ] = False,
) -> None:
    """Say how many prompts, samples, seeds, trials and minutes a difference takes.

    And the smallest difference that the study at hand could have seen.
    """
    from kltune.launch.plan import PlanRequest, run_plan

    request = PlanRequest(spec, difference, power, study, as_json, out)
    raise typer.Exit(run_plan(request))
