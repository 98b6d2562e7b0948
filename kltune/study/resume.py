"""A bank, a trial and its checkpoints in; the trial in its slot out, from the newest checkpoint that can be used."""

from __future__ import annotations

import logging
from pathlib import Path

from kltune.errors import CheckpointError
from kltune.metrics.jsonl import read_rows
from kltune.metrics.rows import EVENTS, STEPS, merge_attempts
from kltune.spec.trial import TrialSpec
from kltune.trainer.protocol import TrialBank
from kltune.trial.folder import TrialFolder

_logger = logging.getLogger(__name__)


def start_or_resume(
    bank: TrialBank, slot: int, setting: TrialSpec, folder: TrialFolder, *, is_again: bool
) -> int:
    """Admit the trial of ``folder`` and return the steps done; 0 where no checkpoint can be used.

    A checkpoint that is damaged, or belongs to something else, and one whose curve is not on record any
    more (a power failure may lose it), is passed over: that is logged, and an event of the trial.
    ``is_again``: there were attempts before; else it starts at step 0.

    Raises:
        TrialFault: the trial can't run, as from the bank's ``admit``.
        DiskError: the event can't be written.
    """
    for checkpoint in folder.checkpoints_to_resume() if is_again else ():
        try:
            step = bank.admit(slot, folder.trial_number, setting, checkpoint)
        except CheckpointError as error:
            _pass_over(folder, checkpoint, str(error))
            continue
        missing = _missing_steps(folder.path, step)
        if not missing:
            return step
        bank.evict(slot)
        shown = f"{missing[0]}" if len(missing) == 1 else f"{missing[0]} to {missing[-1]}"
        what = f"its record lacks {len(missing)} of the steps before it ({shown})"
        _pass_over(folder, checkpoint, f"checkpoint {checkpoint} at step {step}: {what}")
    return bank.admit(slot, folder.trial_number, setting, None)


def _pass_over(folder: TrialFolder, checkpoint: Path, why: str) -> None:
    last = folder.checkpoints_to_resume()[-1:]
    then = "starting at step 0" if (checkpoint,) == last else "trying the one before"
    _logger.warning("trial %d: %s; %s", folder.trial_number, why, then)
    folder.append_event("checkpoint_unusable", 0, detail=why)


def _missing_steps(path: Path, step: int) -> list[int]:
    """Steps before ``step`` that the record does not hold."""
    if step == 0:
        return []
    rows = merge_attempts(read_rows(path / STEPS), read_rows(path / EVENTS))
    return sorted(set(range(1, step + 1)) - {int(row["step"]) for row in rows})
