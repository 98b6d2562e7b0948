"""``kltune audit``: a spec, a trial or two models in, what each KL penalty would do to them out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kltune.cli import flags

EXAMPLE = "Example: kltune audit sweeps/kitchen.yaml"


def command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            help="Spec, study folder (with --trial) or model folder (with --reference and --prompts).",
        ),
    ],
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=flags.count,
            help="Spec: steps with beta 0 before the audit.  [default: 10]",
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
        Path | None, typer.Option(metavar="FOLDER", help="Model: what it is compared with.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Model: prompts (.jsonl or .txt) to complete."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="M",
            parser=flags.count,
            help="Completions to draw; more of them, narrower error bars.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="S", parser=flags.seed, help="Root of the random numbers."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where audit.json and audit.png go.  [default: audits/<name>]"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Compare the gradient of every KL penalty with the exact one, on your own model.

    Also: KL in both units, bias and spread of each estimator, the KL's pull against the reward's,
    and what TRL, verl, OpenRLHF and NeMo-RL would log for the same samples.
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
