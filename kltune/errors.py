"""Every error that kltune raises on purpose, and the exit code each one maps to.

    KltuneError                  exit  a person reads the message; no traceback
    ├── SpecError                 2    a bad spec, flag, or a path in it that is absent or unreadable
    ├── StudyError                2    a study folder that belongs to another spec, or is in use
    ├── GateError                 4    a gate failed (check, validate, diagnose --fail-on, ...)
    ├── EnvironmentMissingError   5    the environment can't: no such device, hub unreachable, missing extra
    │   └── ServiceError          5    a server that scores come from is down, or its budget spent: resumable
    ├── RunError                  1    a run-time error outside any single trial
    │   ├── DiskError             1    the study's folder can't be written: full, read-only, gone; resumable
    │   └── CheckpointError       1    a checkpoint can't be used; the trial goes on from an older one, or anew
    └── TrialFault                -    trials of a bank can't go on; the search goes on without them
        ├── OutOfMemoryFault      -    for lack of memory, after shrinking
        └── SlotsLostFault        -    since their slots are gone; they can go on in others

Exit codes without an exception: 0 done, 3 finished with no feasible trial,
75 interrupted but resumable (SIGTERM), 130 Ctrl-C after a clean flush (design.md §6).

Errors keep the default constructor: they are pickled across workers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What the process returns to the shell."""

    DONE = 0
    RUN_ERROR = 1
    USAGE = 2
    NO_FEASIBLE_TRIAL = 3
    GATE_FAILED = 4
    ENVIRONMENT = 5
    TERMINATED = 75
    INTERRUPTED = 130


class KltuneError(Exception):
    """The root: anything a person should read as one message."""

    exit_code: ClassVar[ExitCode] = ExitCode.RUN_ERROR


class SpecError(KltuneError):
    """The spec, a flag, or a path named in it is wrong; nothing was started."""

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class StudyError(KltuneError):
    """The study folder can't be used as asked; nothing was changed."""

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class GateError(KltuneError):
    """A check that the user asked for did not pass."""

    exit_code: ClassVar[ExitCode] = ExitCode.GATE_FAILED


class EnvironmentMissingError(KltuneError):
    """This machine lacks what was asked for: a device, a package, a hub."""

    exit_code: ClassVar[ExitCode] = ExitCode.ENVIRONMENT


class ServiceError(EnvironmentMissingError):
    """A service that scores come from can't be used now: no trial's fault; the study stops and can go on."""


class RunError(KltuneError):
    """Something outside any single trial went wrong while running."""

    exit_code: ClassVar[ExitCode] = ExitCode.RUN_ERROR


class DiskError(RunError):
    """A file of the study can't be written: ``DiskError(message, path)``. What was written before is whole."""

    @property
    def path(self) -> str:
        """The file or folder."""
        return str(self.args[1]) if len(self.args) > 1 else ""

    def __str__(self) -> str:
        """What went wrong, for people."""
        return str(self.args[0])


class CheckpointError(RunError):
    """A checkpoint is damaged, or belongs to something else: nothing was changed."""


class TrialFault(KltuneError):
    """Some trials of a bank can't go on: ``TrialFault(slots, message)``.

    Raised by a bank before it changed anything: no weight, no random stream, of no slot. The
    search ends the trials in ``slots`` as errors and repeats the call without them.
    """

    is_retried: ClassVar[bool] = False
    """Whether the trial may be tried again: a reward that raises or hangs would do it again."""

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots whose trials end."""
        return tuple(self.args[0])

    def __str__(self) -> str:
        """What went wrong, for people."""
        return str(self.args[1])


class OutOfMemoryFault(TrialFault):
    """The trials don't fit in memory, even with the smallest micro-batch."""

    is_retried: ClassVar[bool] = True


class SlotsLostFault(TrialFault):
    """The slots are gone, and their process with them: the trials go on from their checkpoints in others."""

    is_retried: ClassVar[bool] = True
