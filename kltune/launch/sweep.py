"""``kltune sweep``: a request in, an exit code out; a bad spec is refused before anything heavy loads."""

from __future__ import annotations

from contextlib import nullcontext

from kltune.errors import ExitCode
from kltune.launch import signals
from kltune.launch.request import SweepRequest
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.launch.threads import keep_memory, share_cores
from kltune.spec.checks import check_paths


def run_sweep(request: SweepRequest) -> ExitCode:
    """Run or resume the study of a request.

    Raises:
        SpecError: the spec or a path in it; nothing was started.
        StudyError: the folder belongs to another spec or is in use; nothing was changed.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    spec = request.load()
    check_paths(spec)
    share_cores()
    keep_memory()
    stop = signals.StopRequest(
        spec.spec.budget.wall,
        lambda reason: say(f"{reason}: stopping; trials that run are saved ..."),
    )
    # A dry run has nothing to save: signals end it as they would any program.
    listening = nullcontext() if request.dry_run else stop.listening()
    try:
        with listening, reserved_stdout(is_reserved=request.as_json) as result:
            # torch, Optuna and the rest take seconds to import: not before the spec is sound.
            from kltune.launch.session import run_session

            return run_session(request, spec, stop, result)
    except KeyboardInterrupt:
        say(
            "stopped at once; finished trials and the last checkpoints are kept, the report was not written"
        )
        return ExitCode.INTERRUPTED
