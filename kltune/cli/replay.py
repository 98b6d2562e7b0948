"""``kltune replay``: a study and a trial's number in, the trial run again and compared with its record out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune replay studies/kitchen-grpo --trial 7 --steps 1 --trace"


def command(
    study: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY", autocompletion=complete.studies, help="The study's folder."
        ),
    ],
    trial: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=flags.seed,
            autocompletion=complete.trials,
            help="Number of the trial.",
        ),
    ],
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="M",
            parser=flags.count,
            help="Steps to run, also more than were recorded; guards then only warn.  "
            "[default: as recorded]",
        ),
    ] = None,
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Take a step apart, token by token: trace.html, .txt, .json."),
    ] = False,
    trace_step: Annotated[
        int | None,
        typer.Option(
            metavar="S", parser=flags.count, help="Which step; implies --trace.  [default: 1]"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="For the results.  [default: STUDY/replays/<trial>]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Run one trial of STUDY again and say whether it repeats its record.

    The study is left alone but for its folder replays/. Exit code: 0 run (also where it
    parts from the record), 2 no such trial, or inputs that changed, 75 and 130 cut short
    (what was run is kept), 1 error, 5 this machine can't.
    """
    from kltune.launch.replay import ReplayRequest, run_replay

    request = ReplayRequest(
        study_path=study,
        trial=trial,
        steps=steps,
        trace=trace_step or (1 if trace else None),
        out=out,
        as_json=as_json,
    )
    raise typer.Exit(run_replay(request))
