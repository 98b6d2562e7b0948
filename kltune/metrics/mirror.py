"""The MLflow mirror: folders of the record in, one parent run and one child run a trial out.

A daemon thread reads what is new in the JSONL record and sends it; training never waits.
How far a trial was sent stands in its ``mlflow.json``, so an outage, or a process that died,
loses nothing: the next sync goes on from there. A step that was sent stays as it was sent,
even where a later attempt repeats it. Of many processes on one study one sends, the trials of
the others too; the others stand by, and one of them takes over when it is gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kltune.errors import StudyError
from kltune.metrics.connection import Connection
from kltune.metrics.jsonl import read_rows
from kltune.metrics.mirror_lock import MirrorLock
from kltune.metrics.mirror_todo import Closing, Todo
from kltune.metrics.names import check_names
from kltune.metrics.news import News
from kltune.metrics.outage import TrackerLoss, TrackerOutage, TrackerRefusal
from kltune.metrics.payload import DatasetFacts, points
from kltune.metrics.rows import CONFIG, EVENTS
from kltune.metrics.runs import Runs
from kltune.metrics.tracker import Tracker, redact
from kltune.metrics.trial_run import IsDead

_logger = logging.getLogger(__name__)
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 30.0
_POLL_S: Final = 5.0
_CLOSING_POLL_S: Final = 0.2
_STALLED_S: Final = 9.0
"""At the end, a tracker that has not answered for that long is not waited for."""
_REST_OF_EXIT_S: Final = 5.0
"""What a process may need to end, once the mirror is closed: seconds on a busy machine."""


class MlflowMirror:
    """Keeps an MLflow tracker in step with a study's folder."""

    def __init__(
        self,
        study_path: Path,
        tracker: Tracker,
        name: str,
        datasets: Sequence[DatasetFacts],
        has_others: Callable[[], bool] = lambda: False,
    ) -> None:
        """``has_others``: whether another process may be at work in the study; asked now and then."""
        self._study_path = study_path
        self._tracker = tracker
        self._connection = Connection(study_path, tracker, name, datasets)
        self._has_others = has_others
        self.poll_s = _POLL_S
        """Seconds between two looks for what other processes wrote."""
        self._changed = threading.Condition()
        self._todo = Todo()
        self._news = News(study_path)
        self._lock = MirrorLock(study_path)
        self._mine: set[Path] = set()
        self._dead_events: dict[Path, int] = {}
        self._thread: threading.Thread | None = None
        self._is_at_it = False
        self._is_synced = False
        self._is_out = False
        self._busy_s = 0.0

    @property
    def busy_s(self) -> float:
        """CPU seconds that the mirror has used so far, MLflow's import included."""
        return self._busy_s + self._connection.patience.cpu_s

    def start(self) -> None:
        """Start mirroring; call it before the first trial of this process is admitted.

        Trials that look as if they ran belong to a process that died, unless another one is at
        work: their runs are ended. What an earlier process could not send is sent.
        """
        for config in sorted(self._study_path.glob(f"trials/*/{CONFIG}")):
            self._dead_events[config.parent] = len(read_rows(config.parent / EVENTS))
        self._thread = threading.Thread(target=self._run, name="mlflow-mirror", daemon=True)
        self._thread.start()

    def notice(self, trial_folder: Path) -> None:
        """Say that a trial was admitted, evaluated or ended here; returns at once."""
        with self._changed:
            self._mine.add(trial_folder)
            self._todo.folders[trial_folder] = None
            self._changed.notify()

    def log_study(self, values: Mapping[str, float], step: int) -> None:
        """Record study metrics after ``step`` ended trials; returns at once."""
        check_names(values)
        found = points([{**values, "time": time.time(), "step": step}])
        with self._changed:
            self._todo.points += found
            self._changed.notify()

    def close(
        self,
        status: str,
        artifacts: Sequence[Path] = (),
        timeout_s: float = 15.0,
        *,
        is_last: bool = True,
    ) -> bool:
        """Send what is left and end the parent run; return whether everything arrived.

        ``status``: FINISHED, KILLED or FAILED. ``artifacts``: files such as the report. ``is_last``:
        whether no other process works on the study; where one does, the parent goes on running, and
        it sends what is left. The process can have ended after ``timeout_s``; what is missing is
        sent at the next start of the study.
        """
        thread = self._thread
        if thread is None:
            return False
        now = time.monotonic()
        until = now + max(timeout_s - _REST_OF_EXIT_S, timeout_s / 2)
        with self._changed:
            self._todo.closing = Closing(
                status, tuple(artifacts), is_last, until, now, self._is_out
            )
            self._changed.notify()
        self._wait_for_end(thread, until)
        if not self._is_synced:
            _logger.warning(
                "MLflow at %s has not got everything. The record in %s is complete; the next start "
                "of this study sends the rest",
                redact(self._tracker.uri),
                self._study_path,
            )
        return self._is_synced

    def _wait_for_end(self, thread: threading.Thread, until: float) -> None:
        """Wait for the thread as long as it gets on."""
        moved_at = time.monotonic()
        while thread.is_alive() and (now := time.monotonic()) < until:
            # Where another process sends, nothing is known of how it gets on.
            moved_at = max(
                moved_at, self._connection.patience.moved_at() if self._is_at_it else now
            )
            if now - moved_at >= _STALLED_S:
                return
            thread.join(min(_CLOSING_POLL_S, until - now))

    def _run(self) -> None:
        try:
            if self._stand_by():
                self._is_at_it = True
                self._send_until_closed()
        finally:
            self._lock.release()

    def _stand_by(self) -> bool:
        """Wait until this process is the one that sends; return false where it never has to."""
        while True:
            closing = self._todo.closing
            if closing is not None and not closing.is_last and not self._is_only_one():
                self._is_synced = True  # by the one that sends
                return False
            if self._is_only_one():
                return True
            if closing is not None and time.monotonic() > closing.until:
                return False
            with self._changed:
                if closing is None:
                    self._changed.wait_for(lambda: self._todo.closing is not None, self.poll_s)
                else:
                    self._changed.wait(_CLOSING_POLL_S)

    def _is_only_one(self) -> bool:
        try:
            return self._lock.take()
        except OSError:  # no locks on this file system, or nothing can be written here
            return True

    def _send_until_closed(self) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            closing = self._todo.closing
            self._look(closing)
            is_sent = self._attempt(closing)
            self._busy_s = time.thread_time()
            has_hope = self._connection.has_lost
            if self._is_synced or (
                closing is not None and not closing.may_try_again(has_hope=has_hope)
            ):
                return
            with self._changed:
                if is_sent:
                    wait_s = _FIRST_WAIT_S
                    self._changed.wait_for(self._todo.has_work, self.poll_s)
                elif closing is not None:
                    self._changed.wait(_FIRST_WAIT_S)
                else:
                    self._changed.wait_for(lambda: self._todo.closing is not None, wait_s)
                    wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _look(self, closing: Closing | None) -> None:
        """Put what is new on disk on the list; at the very end, whatever has not ended as well."""
        found = self._news.look()
        if closing is not None and closing.is_last:
            found += self._news.going_on()
        with self._changed:
            self._todo.folders |= dict.fromkeys(found)

    def _attempt(self, closing: Closing | None) -> bool:
        """Send all that is due; return whether it arrived. Reports an outage once."""
        try:
            runs = self._connection.runs or self._open()
            self._drain(runs, closing)
            if runs.offer.late is not None:
                raise TrackerOutage(f"files did not arrive ({runs.offer.late})")
            if self._is_out and closing is None:
                runs.watch()
        except (TrackerOutage, TrackerRefusal, StudyError, OSError) as error:
            if isinstance(error, TrackerLoss):
                self._connection.lose()
            if not self._is_out:
                _logger.warning(
                    "MLflow at %s: %s. Training goes on; the record in %s keeps everything until "
                    "MLflow takes it",
                    redact(self._tracker.uri),
                    redact(str(error)),
                    self._study_path,
                )
            self._is_out = True
            return False
        if self._is_out:
            _logger.info("MLflow at %s is back and up to date", redact(self._tracker.uri))
        self._is_out = False
        return True

    def _open(self) -> Runs:
        found = self._connection.open()
        # The tracker may have lost what was sent: every trial is looked at.
        self._news = News(self._study_path)
        self._look(None)
        return found

    def _drain(self, runs: Runs, closing: Closing | None) -> None:
        runs.offer.late = None
        held_back: dict[Path, None] = {}
        while (folder := self._next_folder()) is not None:
            try:
                self._sync(runs, folder, closing)
            except (TrackerOutage, TrackerRefusal):
                with self._changed:
                    self._todo.folders |= {**held_back, folder: None}
                raise
            if runs.offer.late is not None:
                held_back[folder] = None
        with self._changed:
            self._todo.folders |= held_back
            unsent, self._todo.points = self._todo.points, []
        try:
            runs.log_standing()
            runs.log_study(unsent)
        except (TrackerOutage, TrackerRefusal):
            with self._changed:
                self._todo.points = unsent + self._todo.points
            raise
        if closing is not None:
            runs.files_due += [path for path in closing.artifacts if path not in runs.files_due]
        is_all = runs.log_files()
        if closing is not None:
            _ = runs.close(closing.status) if closing.is_last else runs.leave()
            self._is_synced = is_all

    def _sync(self, runs: Runs, folder: Path, closing: Closing | None) -> None:
        self._news.note(folder)
        try:
            is_over = runs.sync(folder, self._is_dead(folder, closing))
        except (StudyError, OSError) as error:
            runs.offer.say(f"{folder} is not mirrored to MLflow: {error}")
        else:
            if is_over:
                self._news.note_over(folder)

    def _is_dead(self, folder: Path, closing: Closing | None) -> IsDead:
        def is_dead(num_events: int) -> bool:
            if closing is not None and closing.is_last:
                return True  # nobody is left to run it
            is_old = folder not in self._mine and self._dead_events.get(folder) == num_events
            return is_old and not self._has_others()

        return is_dead

    def _next_folder(self) -> Path | None:
        with self._changed:
            folder = next(iter(self._todo.folders), None)
            if folder is not None:
                del self._todo.folders[folder]
            return folder
