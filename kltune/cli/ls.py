"""``kltune ls``: folders in, one line per study in them out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: kltune ls studies"


def command(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Looked in, two levels deep.  [default: studies]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """List studies: state, trials, best gold and its KL, age, size on disk.

    Reads files only; a folder that can't be read is listed with the reason. Exit code:
    0 listed (also where there is none), 2 no such folder.
    """
    from kltune.launch.ls import LsRequest, run_ls

    raise typer.Exit(run_ls(LsRequest(tuple(folders or ()), as_json)))
