"""Arguments in, exit code out: the app, and the one place where an error becomes a message.

Imports typer, the error tree and what masks secrets, nothing else: `kltune --help` starts in 0.3 s.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from kltune import __version__
from kltune.cli import (
    audit,
    check,
    confirm,
    convert,
    diagnose,
    explain,
    export,
    init,
    ls,
    plan,
    preview,
    replay,
    report,
    status,
    sweep,
    task,
    transfer,
    ui,
    validate,
    worker,
)
from kltune.cli.paths import refuse_addresses
from kltune.errors import ExitCode, KltuneError
from kltune.masking import mask_process, redact, traceback_of

SECTIONS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Before a run": {
            "init": "Write a spec, every line explained, by flags or questions.",
            "check": "Check tokens, masks, log-probs, KL, scorers before training.",
            "preview": "Forecast gold against KL from samples, without training.",
            "plan": "Say how many prompts, seeds and minutes a difference takes.",
        },
        "The run": {
            "sweep": "Run the trials of a spec; the same command again resumes.",
            "worker": "Run trials of a study too, beside a sweep or without one.",
            "status": "Say where a study stands, while it runs or after.",
            "ls": "List studies with state, best gold and its KL.",
            "ui": "Show a study in a browser: live report, MLflow, Optuna.",
        },
        "Its answer": {
            "report": "Write a study's report, or compare several studies.",
            "confirm": "Train the winner and its rivals on fresh seeds.",
            "validate": "Judge go or no-go, on one page.",
            "transfer": "Compare the same study on several model sizes.",
            "export": "Write the answer in another trainer's keys and units.",
            "convert": "Turn one trainer's KL settings into another's.",
        },
        "To understand": {
            "audit": "Compare the gradient of each KL penalty with the exact one.",
            "diagnose": "Say what is wrong with any trainer's run, from its log.",
            "replay": "Run one trial again: the same to the last bit?",
            "explain": "Answer questions about KL, one screen each.",
            "task": "List tasks, make your own, try its rewards.",
        },
    }
)
"""Every command in the order of use, and what it does in one line of `kltune --help`."""


_SILENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "DISABLE_SAFETENSORS_CONVERSION": "true",
        "DO_NOT_TRACK": "true",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
)
"""Libraries that would tell their makers of each use, or have a hub model converted: not unless this was asked
for. Children inherit it."""


class _BySection(TyperGroup):
    """Lists the commands by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        width = max(map(len, self.commands))
        for title, lines in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in lines.items()])


app = typer.Typer(
    name="kltune",
    cls=_BySection,
    help="Tune the KL setting of LLM-RL by short trials, judged by a held-out gold.",
    epilog="Example: kltune sweep sweeps/kitchen.yaml",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
app.command("init", epilog=init.EXAMPLE)(init.command)
app.command("check", epilog=check.EXAMPLE)(check.command)
app.command("preview", epilog=preview.EXAMPLE)(preview.command)
app.command("plan", epilog=plan.EXAMPLE)(plan.command)
app.command("sweep", epilog=sweep.EXAMPLE)(sweep.command)
app.command("worker", epilog=worker.EXAMPLE)(worker.command)
app.command("status", epilog=status.EXAMPLE)(status.command)
app.command("ls", epilog=ls.EXAMPLE)(ls.command)
app.command("ui", epilog=ui.EXAMPLE)(ui.command)
app.command("report", epilog=report.EXAMPLE)(report.command)
app.command("confirm", epilog=confirm.EXAMPLE)(confirm.command)
app.command("validate", epilog=validate.EXAMPLE)(validate.command)
app.command("transfer", epilog=transfer.EXAMPLE)(transfer.command)
app.command("export", epilog=export.EXAMPLE)(export.command)
app.command("convert", epilog=convert.EXAMPLE)(convert.command)
app.command("audit", epilog=audit.EXAMPLE)(audit.command)
app.command("diagnose", epilog=diagnose.EXAMPLE)(diagnose.command)
app.command("replay", epilog=replay.EXAMPLE)(replay.command)
app.add_typer(explain.app, name="explain")
app.add_typer(task.app, name="task")
refuse_addresses((app, explain.app, task.app))


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"kltune {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line; an error that a person should read is one message on stderr."""
    # NumPy's own products are small here: threads of its library wait for each other longer than they
    # compute (statistics of 1,000 trials on 2 busy cores: 12 s of processor time against 5). Torch has others.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name, value in _SILENT.items():
        os.environ.setdefault(name, value)
    # A terminal that can't show a character gets a replacement, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    mask_process(words=[sys.stderr], data=[sys.stdout])
    try:
        app(prog_name="kltune")  # also as `python -m kltune`: shells complete that name
    except Exception as error:  # noqa: BLE001 - Python's own last words would show secrets
        sys.exit(_tell(error))


def _tell(error: Exception) -> int:
    """Say what is wrong, without secrets; return the exit code."""
    # A message may hold what a model's or a user's code said: it must do nothing to the terminal.
    from kltune.report.text import visible

    if isinstance(error, KltuneError):
        typer.echo(f"error: {visible(redact(str(error)))}", err=True)
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        typer.echo(f"error: {error.strerror}: {str(error.filename)[:60]} ...", err=True)
        return ExitCode.USAGE
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        where = visible(redact(str(error.filename or "a file")))
        typer.echo(f"error: {where}: can't be written ({error.strerror})", err=True)
        return ExitCode.RUN_ERROR
    typer.echo(visible(traceback_of(error)), err=True, nl=False)
    return ExitCode.RUN_ERROR
