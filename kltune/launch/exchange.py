"""A study whose record has an address in; its trials exchanged while a member works, and what it was set up with out.

Without an address (``storage.record``) nothing happens: all members share one folder then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from kltune.guard.alarm import Alarm
from kltune.launch.assemble import REFERENCE
from kltune.launch.proxy import folder_of
from kltune.launch.saying import say
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.study import StudySpec
from kltune.study.observer import Admitted, Observer
from kltune.study.storage import OpenStudy
from kltune.trial.bundle import fetch, send, snapshot, versions_of
from kltune.trial.disk import remove
from kltune.trial.exchange import ASIDE, Exchange
from kltune.trial.outcome import TrialOutcome
from kltune.trial.remote import Remote, RemoteTroubleError

_SCRATCH: Final = ".set-up"
_PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 2.0

_logger = logging.getLogger(__name__)


class ExchangeObserver:
    """A :class:`kltune.study.observer.Observer` that has trials sent; it never waits for that."""

    def __init__(self, exchange: Exchange) -> None:
        """``exchange`` must be started."""
        self._exchange = exchange
        self.cut: set[int] = set()
        """Trials whose latest attempt a stop kept from coming: what ran here instead is not sent."""

    def admitted(self, event: Admitted) -> None:
        """Nothing to send yet."""

    def stepped(self, metrics: StepMetrics) -> None:
        """Steps travel with the next evaluation."""

    def evaluated(self, metrics: EvalMetrics) -> None:
        """A slot was judged, and its checkpoint saved."""
        self._notice(metrics.trial_number)

    def warned(self, trial_number: int, alarm: Alarm) -> None:
        """Warnings travel with the next evaluation."""

    def ended(self, outcome: TrialOutcome) -> None:
        """A trial left its slot."""
        self._notice(outcome.trial_number)

    def bring(self, number: int, stop: Callable[[], str | None]) -> bool:
        """As `Exchange.bring`, but no longer than until ``stop`` names a reason."""
        self.cut.discard(number)
        is_cut = False

        def heard() -> str | None:  # asked only where the trial could not be brought
            nonlocal is_cut
            reason = stop()
            is_cut = reason is not None
            return reason

        came = self._exchange.bring(number, stop=heard)
        if is_cut and not came:
            self.cut.add(number)
        return came

    def _notice(self, number: int) -> None:
        if number not in self.cut:
            self._exchange.notice(number)


@contextmanager
def exchanged(
    opened: OpenStudy, stop: Callable[[], str | None] = lambda: None
) -> Generator[tuple[OpenStudy, list[Observer]]]:
    """Exchange trials inside the block; at its end send the rest and bring what the other members ran.

    Gives the study to run the search on, and who must watch it. Once ``stop`` names a reason, no trial is
    waited for.
    """
    address = opened.spec.storage.record
    if address is None:
        yield opened, []
        return
    remote = Remote(address)
    exchange = Exchange(remote, opened.path, opened.spec.name)
    exchange.start()
    say(f"the record is exchanged by {remote.shown}")
    is_whole = False
    observer = ExchangeObserver(exchange)
    try:
        bring = partial(observer.bring, stop=stop)
        yield dataclasses.replace(opened, bring=bring), [observer]
        is_whole = True
    finally:
        exchange.close()
        for number in observer.cut:
            _set_aside(opened.path, number)
        if is_whole:  # whoever leaves by an error writes no report
            exchange.bring_all(patience_s=15.0)


def _set_aside(study_path: Path, number: int) -> None:
    """Make way for the attempt that did not come: it has gone further than what began here without it."""
    folder = study_path / "trials" / f"{number:05d}"
    aside = study_path / ASIDE / f"{folder.name}-{time.time_ns()}"
    aside.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)


def bring_set_up(spec: StudySpec, study_path: Path) -> bool:
    """Bring what the first member measured and learned (sigma_R, a learned proxy), if this folder has none; whether it came.

    So all members train by the same numbers. An address that is away for two minutes is passed over, with a warning.
    """
    if spec.storage.record is None or (study_path / REFERENCE).is_file():
        return False
    remote, scratch = Remote(spec.storage.record), study_path / _SCRATCH
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            found = fetch(remote, _place(spec), scratch)
            break
        except RemoteTroubleError as error:
            if time.monotonic() > until:
                _logger.warning(
                    "sigma_R is measured here, since the first member's can't be brought: %s", error
                )
                found = None
                break
            time.sleep(_PAUSE_S)
    if found is not None:
        for path in sorted(p for p in scratch.rglob("*") if p.is_file()):
            target = study_path / path.relative_to(scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
    remove(scratch)
    return found is not None


def send_set_up(spec: StudySpec, study_path: Path) -> None:
    """Send what this member measured and learned, where nobody has before; an outage is a warning."""
    if spec.storage.record is None:
        return
    remote, scratch = Remote(spec.storage.record), study_path / _SCRATCH
    try:
        if not versions_of(remote, _place(spec)):
            send(
                remote, _place(spec), 1, scratch, snapshot(study_path, _files(study_path), scratch)
            )
    except RemoteTroubleError as error:
        _logger.warning("other members must measure sigma_R themselves: %s", error)
    finally:
        remove(scratch)


def _files(study_path: Path) -> list[str]:
    learned = [path for path in folder_of(study_path).rglob("*") if path.is_file()]
    return [path.relative_to(study_path).as_posix() for path in (study_path / REFERENCE, *learned)]


def _place(spec: StudySpec) -> str:
    return f"{spec.name}/set-up"
