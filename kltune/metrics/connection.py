"""A study and its tracker in, the runs to send to out: opened, lost and opened anew."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from kltune.metrics.outage import TrackerOutage, TrackerRefusal
from kltune.metrics.own_database import prepare_own
from kltune.metrics.patience import Patience
from kltune.metrics.payload import DatasetFacts
from kltune.metrics.runs import Runs
from kltune.metrics.tracker import Tracker

_logger = logging.getLogger(__name__)


class Connection:
    """Holds the runs while there are any."""

    def __init__(
        self, study_path: Path, tracker: Tracker, name: str, datasets: Sequence[DatasetFacts]
    ) -> None:
        self._study_path = study_path
        self._tracker = tracker
        self._name = name
        self._datasets = tuple(datasets)
        self.has_lost = False
        """Whether the tracker no longer had what was sent: it answers, and gets everything anew."""
        self.patience = Patience(is_bounded=tracker.sqlite_path is None)
        self.runs: Runs | None = None

    def open(self) -> Runs:
        """Import MLflow and find or create the study's run.

        Raises `TrackerOutage`, `TrackerRefusal`, `StudyError` or `OSError` where that can't be done now.
        """
        if self._tracker.is_own:
            self._make_way()
        self.runs = Runs.open(
            self._study_path, self._tracker, self._name, self._datasets, self.patience
        )
        self.has_lost = False
        return self.runs

    def lose(self) -> None:
        """Begin anew next time: the tracker no longer has what was sent."""
        runs, self.runs = self.runs, None
        self.has_lost = True
        if runs is not None:
            with contextlib.suppress(TrackerOutage, TrackerRefusal):
                runs.leave()
            runs.store.let_go()

    def _make_way(self) -> None:
        aside = prepare_own(self._study_path, is_doubted=self.has_lost)
        if aside is not None:
            _logger.warning(
                "MLflow's database was damaged: moved to %s; a new one is filled from the record",
                aside,
            )
