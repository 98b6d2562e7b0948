"""``kltune preview``: a spec in, what KL can buy on its task out, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune preview sweeps/kitchen.yaml"


def command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC",
            autocompletion=complete.specs_and_studies,
            help="Spec (YAML); a study folder weighs in what its trials learned.",
        ),
    ],
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=flags.count,
            help="Completions per prompt.  [default: 16 to 256, by model]",
        ),
    ] = None,
    prompts: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            parser=flags.count,
            help="Select prompts.  [default: evaluate.prompts, at least 32]",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="S", parser=flags.seed, help="Root of the random numbers."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="For the results.  [default: the study, else studies/previews/<name>]",
        ),
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Put the suggested ranges into the spec (keeps a .bak)."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Forecast gold and proxy against KL from samples of the reference.

    No training: best-of-n, the best policy at each beta, and where gold turns.
    """
    from kltune.launch.preview import PreviewRequest, run_preview

    request = PreviewRequest(
        target=target,
        samples=samples,
        prompts=prompts,
        seed=seed,
        out=out,
        write=write,
        as_json=as_json,
    )
    raise typer.Exit(run_preview(request))
