"""A job in, a bank in a process of its own out: it does what the main process asks for over a pipe.

A command is ``(number, name, arguments)``, a reply ``(number, value, error)``; the main process
knows by the number which replies it still waits for. Nothing heavy is imported before the number
of threads is set, so the job itself comes pickled.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from kltune.errors import KltuneError, RunError
from kltune.launch.signals import ignored, spare_forked_children
from kltune.launch.threads import keep_memory, share_cores

if TYPE_CHECKING:
    from kltune.metrics.record import RewardScale
    from kltune.spec.load import LoadedSpec
    from kltune.tasks.protocol import Scorer
    from kltune.trainer.protocol import TrialBank

START = 0
"""Number of the reply that says that the bank stands."""

COMMANDS = ("admit", "train_step", "evaluate", "save_checkpoint", "save_adapter", "evict")


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker builds its bank from: everything that was measured or learned comes with it."""

    spec: LoadedSpec
    study_path: Path | None
    """Where a learned proxy lies."""
    scale: RewardScale
    slots: int
    stand_in: Scorer | None = None
    """In place of the proxy, for a run that only measures time."""


def serve(pipe: Connection, threads: int, payload: bytes) -> None:
    """Main of a worker process: build the bank of the pickled :class:`Job`, then obey until the pipe closes."""
    _leave_signals_to_the_main_process()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    share_cores()
    try:
        bank = _build(pickle.loads(payload), threads)
    except Exception as error:  # noqa: BLE001 - the main process decides, whatever it is
        _reply(pipe, START, None, error)
        return
    if _reply(pipe, START, None, None):
        obey(pipe, bank)


def obey(pipe: Connection, bank: TrialBank) -> None:
    """Carry out commands until the other end is closed, or its process is gone."""
    while True:
        try:
            number, name, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        assert name in COMMANDS, f"no command: {name}"
        value, failed = None, None
        try:
            value = getattr(bank, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - the main process decides, whatever it is
            failed = error
        if not _reply(pipe, number, value, failed):
            return


def _build(job: Job, threads: int) -> TrialBank:
    import torch

    from kltune.launch.assemble import build_bank, find_inputs, load_ground

    torch.set_num_threads(threads)
    keep_memory()
    ground = load_ground(job.spec.spec, find_inputs(job.spec), job.study_path, job.stand_in)
    return build_bank(ground, job.spec.spec, job.scale, job.slots)


def _leave_signals_to_the_main_process() -> None:
    """Ctrl-C and SIGTERM reach the whole process group; running trials are saved by the main process.

    They were blocked while this process started, so that none could end it half-way.
    """
    ours: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
    spare_forked_children()
    for number in ours:
        signal.signal(number, ignored)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)


def _reply(pipe: Connection, number: int, value: object, error: Exception | None) -> bool:
    """Answer; false where nobody listens any more."""
    try:
        pipe.send((number, value, None if error is None else _portable(error)))
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _portable(error: Exception) -> Exception:
    """The error itself where it survives pickling, else one of the same kind with its words."""
    if not isinstance(error, KltuneError):
        error.add_note(f"In a worker process:\n{''.join(traceback.format_exception(error))}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - foreign classes may raise anything here
        text = f"{type(error).__name__}: {error}"
        return RuntimeError(text) if isinstance(error, RuntimeError) else RunError(text)
    return error
