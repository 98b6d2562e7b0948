"""``kltune export``: a study in, its recommended setting in another trainer's keys and units out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune export studies/kitchen-grpo --to verl --batch 8192 --group 8"


def command(
    study: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY", autocompletion=complete.studies, help="The study's folder."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=complete.words(
                *complete.TRAINERS, "json", "tripwire", "peft", "csv", "parquet"
            ),
            help="For whom: see above.",
        ),
    ],
    trial: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=flags.seed,
            autocompletion=complete.trials,
            help="Its setting.  [default: the recommended one]",
        ),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(metavar="X", help="Release of that trainer.  [default: the newest known]"),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For a tripwire: trl, verl, openrlhf (the first able)."),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(metavar="N", parser=flags.count, help="Your completions per step."),
    ] = None,
    group: Annotated[
        int | None,
        typer.Option(metavar="G", parser=flags.count, help="Your completions per prompt."),
    ] = None,
    mean_tokens: Annotated[
        float | None, typer.Option(metavar="T", help="Your mean completion length in tokens.")
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(metavar="M", parser=flags.count, help="Your limit of it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write there (peft, tables: a folder).  [default: stdout]"
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a FILE that kltune did not write as it is.")
    ] = False,
) -> None:
    """Write the setting of STUDY for another trainer, every value with its source.

    --to trl, verl, openrlhf, nemo-rl, json, peft or tripwire; csv or parquet: all
    trials. Exit code: 0 written, 2 refused, 3 no feasible trial.
    """
    from kltune.export.target import Sizes
    from kltune.launch.export import ExportRequest, run_export

    request = ExportRequest(
        study_path=study,
        to=to,
        trial=trial,
        version=version,
        framework=framework,
        sizes=Sizes(batch, group, mean_tokens, max_new_tokens),
        out=out,
        force=force,
    )
    raise typer.Exit(run_export(request))
