"""``kltune sweep``: a request in, an exit code out; a bad spec is refused before anything heavy loads."""

from __future__ import annotations

from kltune.errors import ExitCode
from kltune.launch.request import SweepRequest
from kltune.launch.threads import share_cores
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
    # torch, Optuna and the rest take seconds to import: not before the spec is known to be sound.
    from kltune.launch.session import run_session

    return run_session(request, spec)
