"""``kltune convert``: one trainer's configuration in, the same setting in another's keys and units out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kltune.cli import complete, flags

EXAMPLE = "Example: kltune convert --from verl run_grpo.sh --to trl --out grpo.py"


def command(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="YAML, JSON, shell script; for trl also .py.")
    ],
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="NAME",
            autocompletion=complete.words(*complete.TRAINERS),
            help="Whose it is: trl, verl, openrlhf, nemo-rl.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=complete.words(*complete.TRAINERS, "json"),
            help="One of these, or json.",
        ),
    ],
    from_version: Annotated[
        str | None,
        typer.Option(metavar="X", help="Release it is for.  [default: the newest that fits]"),
    ] = None,
    to_version: Annotated[
        str | None,
        typer.Option(metavar="X", help="Release to write for.  [default: the newest known]"),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(metavar="S", help="Reward's deviation that advantages are divided by."),
    ] = None,
    mean_tokens: Annotated[
        float | None, typer.Option(metavar="T", help="Mean completion length in tokens.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(metavar="N", parser=flags.count, help="Completions per step, if others."),
    ] = None,
    group: Annotated[
        int | None,
        typer.Option(metavar="G", parser=flags.count, help="Completions per prompt, if others."),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", parser=flags.count, help="Limit of a completion, if another."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write there.  [default: stdout]")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a FILE that kltune did not write as it is.")
    ] = False,
) -> None:
    """Write the KL setting of CONFIG for another trainer, with what can't be kept.

    Nothing in CONFIG is run; what it leaves open is its release's default.
    """
    from kltune.export.target import Sizes
    from kltune.launch.convert import ConvertRequest, run_convert

    request = ConvertRequest(
        config=config,
        framework=from_,
        to=to,
        from_version=from_version,
        to_version=to_version,
        sigma=sigma,
        sizes=Sizes(batch, group, mean_tokens, max_new_tokens),
        out=out,
        force=force,
    )
    raise typer.Exit(run_convert(request))
