"""``kltune report``: a study folder in, report.html, report.md and report.json out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: kltune report studies/kitchen-grpo"


def command(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Study folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json on stdout.")] = False,
) -> None:
    """Write the report of STUDY from its record: HTML, Markdown and JSON."""
    from kltune.report.build import build_report

    paths = build_report(study)
    if as_json:
        typer.echo(paths.json.read_text(encoding="utf-8").rstrip("\n"))
        return
    for path in (paths.html, paths.markdown, paths.json):
        typer.echo(str(path))
