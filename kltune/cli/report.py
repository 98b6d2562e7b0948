"""``kltune report``: study folders in; the report of one, or a page that compares several, out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete

EXAMPLE = "Example: kltune report studies/kitchen-grpo studies/kitchen-rloo"


def command(
    studies: Annotated[
        list[Path],
        typer.Argument(
            metavar="STUDY",
            autocompletion=complete.studies,
            help="Study folder; several are compared.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Of a comparison.  [default: studies/compare/<names>]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json on stdout.")] = False,
) -> None:
    """Write the report of STUDY from its record, or compare several studies.

    Written as HTML, Markdown and JSON: of one study into its folder; of
    several, one page with what differs, their answers side by side and whether
    the difference can be told. Exit code: 0 written, 2 no study, or golds that
    don't mean the same.
    """
    from kltune.launch.report import ReportRequest, run_report

    raise typer.Exit(run_report(ReportRequest(tuple(studies), out, as_json)))
