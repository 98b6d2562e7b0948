"""Something for MLflow in, sent or not out: what it refuses is said once and stops nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kltune.metrics.outage import TrackerLoss, TrackerOutage, TrackerRefusal

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Offer:
    """What is tried of one study, and what was said of it."""

    study_path: Path
    is_in_trash: Callable[[], bool] = lambda: False
    """Whether somebody deleted the experiment, and so may restore it: nothing is given up meanwhile."""
    said: set[str] = field(default_factory=set[str])
    late: str | None = None
    """Why some files did not arrive yet: their store may be down while MLflow itself answers."""

    def of(self, what: str, send: Callable[..., object], *args: object) -> None:
        """Call ``send``; a refusal is reported once per kind and does not stop the mirror.

        Raises:
            TrackerOutage: try again later.
            TrackerLoss: the run is gone.
        """
        try:
            send(*args)
        except TrackerLoss:
            raise
        except TrackerRefusal as error:
            self._wait_for_trash()
            self.say(f"MLflow refused {what} ({error}); they are in {self.study_path} only")

    def file(self, send: Callable[..., object], *args: object) -> bool:
        """Call ``send`` with a file; return whether that is settled: where it did not arrive, ``late`` says why."""
        try:
            self.of("artifacts", send, *args)
        except TrackerLoss as error:  # of a store of files, which the metrics do not need
            self.say(f"MLflow refused artifacts ({error}); they are in {self.study_path} only")
        except TrackerOutage as error:
            self.late = str(error)
            return False
        return True

    def refused(self, folder: Path, names: Sequence[str]) -> None:
        """Say which metrics were refused, each name once. Raises `TrackerOutage` as `of` does."""
        if names:
            self._wait_for_trash()
        for name in names:
            self.say(f"MLflow refused values of {name}; they are in {folder} only", name)

    def _wait_for_trash(self) -> None:
        if self.is_in_trash():
            raise TrackerOutage(
                "the experiment was deleted; restore it (`mlflow experiments restore`)"
            )

    def say(self, text: str, key: str | None = None) -> None:
        """Warn, once per ``key`` (the text, if there is none)."""
        if (key or text) not in self.said:
            self.said.add(key or text)
            _logger.warning("%s", text)
