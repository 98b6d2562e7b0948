"""A spec and its loaded base in, the room that the study takes on disk out; a refusal where there is plainly too little."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kltune.errors import EnvironmentMissingError
from kltune.spec.study import StudySpec
from kltune.trial.disk import free_bytes, size_words

if TYPE_CHECKING:
    from kltune.trainer.checkpoint_size import CheckpointSize
    from kltune.trainer.model import LoadedModel

# Measured on studies of 24 and 40 trials of the kitchen, bytes; rounded up.
_STEP: Final = 3000
"""A row of metrics.jsonl and one of tokens.jsonl."""
_EVALUATION: Final = 4000
"""A row of evals.jsonl without its scores by prompt, and outliers.jsonl."""
_SCORE: Final = 14
_SAMPLE: Final = 400
"""A kept sample without its completion."""
_TOKEN: Final = 6
"""Of a kept completion."""
_TRACKED_STEP: Final = 15_000
"""The same step in MLflow's sqlite file."""
_TRACKED_TRIAL: Final = 60_000
"""Artifacts of a run."""
_TRIAL: Final = 40_000
"""A trial's share of study.db and of the report."""
_SLOTS: Final = 8
"""Trials at once at most, where nobody has said how many."""


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """Bytes on disk, at most: guards and pruning make it less."""

    running: int
    """Of a trial while it runs: its checkpoint is there twice for the moment in which it is replaced."""
    kept: int
    """Of a trial that has ended: record and best adapter; what continues it is removed."""
    study: int
    """Of all trials, databases and report, at the moment when it is most."""

    def words(self) -> str:
        """As a person reads it."""
        return (
            f"at most about {size_words(self.study)}: {size_words(self.kept)} for each trial that ended, "
            f"{size_words(self.running)} while it runs"
        )


def disk_need(spec: StudySpec, loaded: LoadedModel) -> DiskNeed:
    """Estimate from the weights that are trained and the rows that are recorded; no bank is on the base now."""
    from kltune.trainer.checkpoint_size import checkpoint_size

    size = checkpoint_size(loaded, spec.model, spec.trainer)
    asked = spec.budget.slots
    slots = min(asked if isinstance(asked, int) else _SLOTS, spec.budget.trials)
    return estimate(spec, size, slots)


def estimate(spec: StudySpec, size: CheckpointSize, slots: int) -> DiskNeed:
    """The same from the sizes of a trial's checkpoints and the trials at once."""
    steps, every = spec.trainer.steps, spec.evaluate.every
    evaluations = len(set(range(0, steps, every)) | {steps})
    scores = (2 + len(spec.task.golds)) * spec.evaluate.prompts
    sample = _SAMPLE + _TOKEN * spec.trainer.max_new_tokens
    record = steps * _STEP + evaluations * (
        _EVALUATION + _SCORE * scores + spec.evaluate.keep * sample
    )
    if spec.tracking.enabled:
        record += steps * _TRACKED_STEP + _TRACKED_TRIAL
    kept = record + _TRIAL + size.best
    running = kept + max(2 * size.last, size.last + size.best)
    return DiskNeed(running, kept, spec.budget.trials * kept + slots * (running - kept))


def refuse_full_disk(study_path: Path, need: DiskNeed) -> None:
    """See to it that the rest of the study fits; what its folder holds already is not needed again.

    Raises:
        EnvironmentMissingError: it plainly does not: both sizes are named, and what would make it less.
    """
    free = free_bytes(study_path)
    lacking = need.study - folder_bytes(study_path)
    if free is None or lacking <= free:
        return
    raise EnvironmentMissingError(
        f"{study_path}: {size_words(free)} are free there, the study needs {size_words(lacking)} more "
        f"({need.words()}): make room, put it elsewhere by --study, or run fewer trials"
    )


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; 0 where there is none."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(Path(path) / name).st_size
    return total
