"""A job in, a bank in a process of its own out: it does what the main process asks for over a pipe.

A command is ``(number, name, arguments, link)``, a reply ``(number, value, error)``; the main process
knows by the number which replies it still waits for. Commands with the same link form a chain:
where one of them breaks it, the rest is skipped. Nothing heavy is imported before the number
of threads is set, so the job itself comes pickled. Pickles pass between processes of kltune alone, over pipes
that only they have; nothing from outside is ever unpickled.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kltune.errors import KltuneError, RunError
from kltune.launch.signals import ignored, spare_forked_children
from kltune.launch.threads import keep_memory, share_cores
from kltune.masking import mask_process
from kltune.metrics.record import StepMetrics

if TYPE_CHECKING:
    from kltune.launch.assemble import JudgedOn
    from kltune.metrics.record import RewardScale
    from kltune.spec.load import LoadedSpec
    from kltune.tasks.protocol import Scorer
    from kltune.trainer.protocol import TrialBank

START = 0
"""Number of the reply that says that the bank stands."""

Halts = Callable[[StepMetrics], bool]
"""Whether a step gives reason to look before the next one; made to be pickled."""

Link = tuple[int, Halts | None, float]
"""The number of a chain, and what breaks it beside an error: a step, or seconds since its first command began."""


class Skipped:
    """The value of a command that was not carried out, since its chain was broken."""


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
    judged_on: JudgedOn = "select"
    """Whose prompts evaluations use."""


def serve(pipe: Connection, threads: int, payload: bytes) -> None:
    """Main of a worker process: build the bank of the pickled :class:`Job`, then obey until the pipe closes."""
    _leave_signals_to_the_main_process()
    mask_process(words=[sys.stderr], data=[sys.stdout])
    os.environ["OMP_NUM_THREADS"] = str(threads)
    share_cores()
    try:
        bank = _build(pickle.loads(payload), threads)
    except Exception as error:  # noqa: BLE001 - the main process decides, whatever it is
        _reply(pipe, START, None, error)
        return
    if _reply(pipe, START, None, None):
        obey(pipe, bank)


def obey(pipe: Connection, bank: TrialBank, clock: Callable[[], float] = time.monotonic) -> None:
    """Carry out commands until the other end is closed, or its process is gone.

    A chain whose time is up is broken as well, so that nobody waits long for it; its first command
    is always carried out, however long steps take.
    """
    broken, begun, until = None, None, 0.0
    while True:
        try:
            number, name, arguments, link = pipe.recv()
        except (EOFError, OSError):
            return
        assert name in COMMANDS, f"no command: {name}"
        value, failed = None, None
        if link is not None and link[0] != begun:
            begun, until = link[0], clock() + link[2]
        elif link is not None and clock() >= until:
            broken = link[0]
        if link is not None and link[0] == broken:
            value = Skipped()
        else:
            value, failed = carried_out(bank, name, arguments)
            if link is not None and (failed is not None or is_halted(link[1], name, value)):
                broken = link[0]
        if not _reply(pipe, number, value, failed):
            return


def carried_out(
    bank: TrialBank, name: str, arguments: tuple[object, ...]
) -> tuple[Any, Exception | None]:
    """What a command returns, or what it raised."""
    try:
        return getattr(bank, name)(*arguments), None
    except Exception as error:  # noqa: BLE001 - the main process decides, whatever it is
        return None, error


def is_halted(halts: Halts | None, name: str, value: Any) -> bool:
    """Whether a command's value breaks its chain."""
    return halts is not None and name == "train_step" and any(halts(one) for one in value)


def _build(job: Job, threads: int) -> TrialBank:
    import torch

    from kltune.launch.assemble import build_bank, find_inputs, load_ground

    torch.set_num_threads(threads)
    keep_memory()
    ground = load_ground(
        job.spec.spec, find_inputs(job.spec), job.study_path, job.stand_in, job.judged_on
    )
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
