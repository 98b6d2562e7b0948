"""``kltune diagnose``: any trainer's log in, what is wrong with the run and what to do first out."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

EXAMPLE = "Example: kltune diagnose outputs/checkpoint-500/trainer_state.json"


def command(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="A log, a folder (study, trial, checkpoint, TensorBoard) or an MLflow URI.",
        ),
    ],
    other: Annotated[
        str | None, typer.Argument(metavar="LOG_B", help="Show where two runs part.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Which run, where LOG holds several (a trial's number)."),
    ] = None,
    kl_unit: Annotated[
        Literal["token", "sequence"] | None,
        typer.Option(help="What the log's KL is a mean over, where it does not tell."),
    ] = None,
    mean_tokens: Annotated[
        float | None,
        typer.Option(metavar="N", help="Mean completion length, where the log has none."),
    ] = None,
    fail_on: Annotated[
        Literal["warn", "fail"] | None,
        typer.Option(
            help="Exit 4 at a finding this bad (or, with two runs, where they stay apart)."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Say what is wrong with a training run, from its log alone.

    Reads kltune, MLflow, TRL, verl, OpenRLHF, NeMo-RL, TensorBoard, W&B CSV, JSONL.
    """
    from kltune.launch.diagnose import DiagnoseRequest, run_diagnose

    request = DiagnoseRequest(
        log=log,
        other=other,
        run=run,
        kl_unit=kl_unit,
        mean_tokens=mean_tokens,
        fail_on=fail_on,
        as_json=as_json,
    )
    raise typer.Exit(run_diagnose(request))
