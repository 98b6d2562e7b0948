"""``kltune audit``: a spec, a trial or two models in, what each KL penalty would do to them out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune audit sweeps/kitchen.yaml"


def command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            autocompletion=complete.studies,
            help="Spec, study folder or model folder.",
        ),
    ],
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=flags.count,
            help="Spec: steps with beta 0 first.  [default: 10]",
        ),
    ] = None,
    trial: Annotated[
        int | None,
        typer.Option(metavar="N", parser=flags.seed, help="Study: number of the trial."),
    ] = None,
    checkpoint: Annotated[
        Literal["best", "last"] | None,
        typer.Option(help="Study: which of its checkpoints.  [default: best]"),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Model: what to compare it with.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Model: prompts (.jsonl or .txt)."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="M",
            parser=flags.count,
            help="Completions to draw; more give narrower error bars.  [default: 1024]",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="S", parser=flags.seed, help="Root of the random numbers."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="For the results.  [default: studies/audits/<name>]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Compare the gradient of every KL penalty with the exact one, on your model.

    Also each estimator's bias, and what other frameworks would log.
    """
    from kltune.launch.audit import AuditRequest, run_audit

    request = AuditRequest(
        target=target,
        steps=steps,
        trial=trial,
        checkpoint=checkpoint,
        reference=reference,
        prompts=prompts,
        samples=samples,
        seed=seed,
        out=out,
        as_json=as_json,
    )
    raise typer.Exit(run_audit(request))
