"""A study whose record has an address in; its trials exchanged while a member works, and what it was set up with out.

Without an address (``storage.record``) nothing happens: all members share one folder then.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
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
from kltune.trial.exchange import Exchange
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

    def admitted(self, event: Admitted) -> None:
        """Nothing to send yet."""

    def stepped(self, metrics: StepMetrics) -> None:
        """Steps travel with the next evaluation."""

    def evaluated(self, metrics: EvalMetrics) -> None:
        """A slot was judged, and its checkpoint saved."""
        self._exchange.notice(metrics.trial_number)

    def warned(self, trial_number: int, alarm: Alarm) -> None:
        """Warnings travel with the next evaluation."""

    def ended(self, outcome: TrialOutcome) -> None:
        """A trial left its slot."""
        self._exchange.notice(outcome.trial_number)


@contextmanager
def exchanged(opened: OpenStudy) -> Generator[tuple[OpenStudy, list[Observer]]]:
    """Exchange trials inside the block; at its end send the rest and bring what the other members ran.

    Gives the study to run the search on, and who must watch it.
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
    try:
        yield dataclasses.replace(opened, bring=exchange.bring), [ExchangeObserver(exchange)]
        is_whole = True
    finally:
        exchange.close()
        if is_whole:  # whoever leaves by an error writes no report
            exchange.bring_all(patience_s=15.0)


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
