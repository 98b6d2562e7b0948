"""``kltune ui``: a study folder in; its live report, MLflow's page and Optuna's dashboard on loopback out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete

EXAMPLE = "Example: kltune ui studies/kitchen-grpo"


def command(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY", autocompletion=complete.studies, help="Study folder.")
    ],
    port: Annotated[
        int | None, typer.Option(metavar="P", help="Of the report.  [default: a free one]")
    ] = None,
    mlflow_port: Annotated[
        int | None, typer.Option(metavar="P", help="Of MLflow's page.  [default: a free one]")
    ] = None,
    optuna_port: Annotated[
        int | None, typer.Option(metavar="P", help="Of the dashboard.  [default: a free one]")
    ] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as JSON on stdout.")
    ] = False,
) -> None:
    """Show STUDY in a browser: its report as it grows, MLflow's page, Optuna's dashboard.

    All three are for this machine only (127.0.0.1) and only read the study; a sweep in it
    goes on. Ctrl-C ends them. Exit code: 0 ended by Ctrl-C or SIGTERM, 2 no study, or a
    port that can't be had.
    """
    from kltune.launch.ui import UiRequest, run_ui

    request = UiRequest(
        study_path=study,
        port=port,
        mlflow_port=mlflow_port,
        optuna_port=optuna_port,
        opens_browser=opens,
        as_json=as_json,
    )
    raise typer.Exit(run_ui(request))
