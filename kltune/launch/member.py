"""A study that is set up in, one member's share of its search out: train, record, leave, and report if it is the last.

The sweep and every worker do the same; the sweep shows more, and always leaves a report.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from kltune.errors import ExitCode
from kltune.launch import signals
from kltune.launch.assemble import Inputs
from kltune.launch.calibrate import Site, placed_bank
from kltune.launch.company import Company
from kltune.launch.exchange import exchanged
from kltune.launch.leaving import leave
from kltune.launch.placement import Calibration
from kltune.launch.saying import say
from kltune.launch.set_up import Ready
from kltune.launch.timing import note_session
from kltune.launch.watching import MirrorObserver
from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.payload import DatasetFacts
from kltune.metrics.rows import EVENTS
from kltune.metrics.runs import has_ended
from kltune.metrics.tracker import Tracker
from kltune.report.build import ReportPaths, build_report
from kltune.report.summary import summary
from kltune.screen.ending import final_summary, near
from kltune.screen.progress import Scope
from kltune.screen.watch import open_screen
from kltune.spec.load import LoadedSpec
from kltune.spec.study import StudySpec
from kltune.study.address import Address
from kltune.study.crew import Membership, others
from kltune.study.ledger import Ledger
from kltune.study.lock import Hold
from kltune.study.loop import run_search
from kltune.study.observer import Observer
from kltune.study.search_end import SearchEnd
from kltune.study.space import fixed_trials
from kltune.study.storage import OpenStudy, open_study
from kltune.trial.outcome import TrialState
from kltune.trial.words import limit_words


@dataclass(frozen=True, slots=True)
class Place:
    """A study, and this process's part in it."""

    spec: LoadedSpec
    study_path: Path
    inputs: Inputs
    tracker: Tracker
    result: TextIO | None
    """Where the JSON goes, if it was asked for."""
    hold: Hold
    membership: Membership

    def has_others(self) -> bool:
        """Whether another member may be at work."""
        return bool(others(self.study_path, self.membership.member.id))


@dataclass(frozen=True, slots=True)
class Searched:
    """What a member did."""

    end: SearchEnd
    calibration: Calibration
    mirror: MlflowMirror | None
    is_last: bool = False
    """Whether nobody else is left in the study."""


def take_part(place: Place, opened: OpenStudy, ready: Ready, stop: signals.StopRequest) -> ExitCode:
    """Run trials until the study is settled or ``stop`` says so, then leave it; closes ``opened``."""
    try:
        with exchanged(opened, stop) as (known, senders):
            searched = _search(place, known, ready, stop, senders)
        paths = _report_so_far(place)
        searched = replace(searched, is_last=leave(place.hold, place.membership, opened.turn))
    finally:
        opened.close()
    return _conclude(place, searched, paths)


def _search(
    place: Place,
    opened: OpenStudy,
    ready: Ready,
    stop: Callable[[], str | None],
    senders: Sequence[Observer],
) -> Searched:
    spec, scale, own = place.spec.spec, ready.scale, place.membership
    ledger = Ledger(opened, fixed_trials(spec, scale), own)
    here = [m for m in others(place.study_path, own.member.id) if m.is_here]
    site = Site(
        place.spec, ready.ground, scale, place.study_path, should_stop=stop, beside=len(here)
    )
    is_over = ledger.num_ended() >= spec.budget.trials
    with placed_bank(site, is_over=is_over) as (bank, calibration):
        own.place(calibration.placement.slots, ready.ground.loaded.device.type)
        # Not before: its thread imports MLflow, and that would be in the calibration.
        mirror = _start_mirror(place)
        is_plain = place.result is not None or own.member.role == "worker"
        with (
            _ended_on_error(place, mirror, opened),
            open_screen(_scope(place.spec, ledger), is_plain=is_plain) as screen,
        ):
            company = Company(screen.progress, ledger.num_ended, place.has_others)
            observers = [company, screen, *([MirrorObserver(mirror)] if mirror else []), *senders]
            end = run_search(bank, ledger, scale.sigma, observers, stop)
            return Searched(end, calibration, mirror)


def _start_mirror(place: Place) -> MlflowMirror | None:
    spec = place.spec.spec
    if not spec.tracking.enabled:
        return None
    mirror = MlflowMirror(
        place.study_path,
        place.tracker,
        spec.name,
        _datasets(place.inputs),
        has_others=place.has_others,
    )
    mirror.start()
    return mirror


def _datasets(inputs: Inputs) -> list[DatasetFacts]:
    task = inputs.task
    splits = {"train": task.splits.train, "select": task.splits.select, "test": task.splits.test}
    return [
        DatasetFacts(
            role, task.name, task.digests[role], len(prompts), source=task.source or task.name
        )
        for role, prompts in splits.items()
    ]


def _scope(loaded: LoadedSpec, ledger: Ledger) -> Scope:
    spec = loaded.spec
    best = ledger.best()
    return Scope(
        name=spec.name,
        trials=spec.budget.trials,
        steps=spec.trainer.steps,
        kl_unit=spec.kl_unit,
        beta_unit=spec.beta_unit,
        credit=spec.trainer.credit,
        limits=limit_words(spec.objective),
        ended_before=ledger.num_ended(),
        best_before=None if best is None else (best.trial_number, best.value),
    )


def _report_so_far(place: Place) -> ReportPaths | None:
    """The sweep's report where others go on without it."""
    path, own = place.study_path, place.membership.member
    left = others(path, own.id)
    if own.role != "sweep" or not left:
        return None
    words = "1 worker goes on" if len(left) == 1 else f"{len(left)} workers go on"
    say(f"{words}: the report shows the study as it is now, and the last of them writes it anew")
    return build_report(path)


def _conclude(place: Place, searched: Searched, paths: ReportPaths | None) -> ExitCode:
    """End what was begun: the last to go writes the report, and the sweep in any case."""
    end, mirror, path = searched.end, searched.mirror, place.study_path
    was_stopped = end.reason in signals.EXIT_CODES
    busy_s = 0.0 if mirror is None else mirror.busy_s
    timing = note_session(path, end, busy_s, searched.calibration)
    is_lead = place.membership.member.role == "sweep"
    is_alone = searched.is_last and not was_stopped
    if is_alone or (is_lead and (searched.is_last or paths is None)):
        paths = build_report(path)
    if mirror is not None:
        mirror.log_study({"study/bookkeeping_frac": timing["bookkeeping_frac"]}, end.trials_ended)
        mirror.close(
            "KILLED" if was_stopped else "FINISHED",
            artifacts=[] if paths is None else _files(paths),
            is_last=searched.is_last,
        )
    facts = summary(path)
    _say_end(place, end)
    if place.result is not None:
        write_result(place.result, facts)
    if paths is not None:
        _show(place, facts, paths, timing)
    if end.reason in signals.EXIT_CODES:
        return signals.EXIT_CODES[end.reason]
    return verdict_of(facts, is_cut_short=end.reason is not None)


def _files(paths: ReportPaths) -> list[Path]:
    return [paths.html, paths.markdown, paths.json]


def _say_end(place: Place, end: SearchEnd) -> None:
    own = place.membership.member
    if own.role == "worker":
        count = f"{end.trials_ended} trial{'s' * (end.trials_ended != 1)}"
        say(f"worker {own.id} ended {count} in {near(place.study_path)}")
    if end.reason is not None:
        say(f"{end.reason}: the same command goes on from here")


def _show(
    place: Place, facts: Mapping[str, Any], paths: ReportPaths, timing: Mapping[str, float]
) -> None:
    files = [paths.html, paths.markdown, paths.json, place.study_path / "trials"]
    ending = final_summary(
        facts,
        files,
        next_command=f"kltune ui {shlex.quote(str(near(place.study_path)))}",
        bookkeeping_frac=timing["bookkeeping_frac"],
    )
    Console(stderr=True).print(ending)


def is_settled(study_path: Path, spec: StudySpec, address: Address) -> bool:
    """Whether the budget of the study is used, and nothing runs or is to go on; loads no model."""
    opened = open_study(study_path, spec, address)
    try:
        return Ledger(opened).num_ended() >= spec.budget.trials
    finally:
        opened.close()


def settled_code(place: Place) -> ExitCode:
    """End of a member that found nothing to do: the last one does what those before it left undone.

    They leave the report and the end of the MLflow run to whoever is there after them; or they were killed.
    """
    path = place.study_path
    if leave(place.hold, place.membership):
        paths = None
        if not _is_reported(path):
            paths = build_report(path)
            say(f"wrote {near(paths.html)}")
        if not has_ended(path) and (mirror := _start_mirror(place)) is not None:
            mirror.close("FINISHED", artifacts=[] if paths is None else _files(paths))
    if place.result is not None:
        write_result(place.result, summary(path))
    return ExitCode.DONE


def _is_reported(study_path: Path) -> bool:
    """Whether a report is there that is not older than the end of any trial."""
    report = study_path / "report.html"
    if not report.is_file():
        return False
    written = report.stat().st_mtime_ns
    events = study_path.glob(f"trials/*/{EVENTS}")
    return all(path.stat().st_mtime_ns <= written for path in events)


def write_result(result: TextIO, facts: Mapping[str, Any]) -> None:
    """One line of strict JSON."""
    result.write(json.dumps({"schema": 1, **facts}, allow_nan=False) + "\n")
    result.flush()


def verdict_of(facts: Mapping[str, Any], *, is_cut_short: bool = False) -> ExitCode:
    """The exit code of a search that was not interrupted: failures alone are an error (design.md §6).

    ``is_cut_short``: the wall budget ended before the trials did; that is no failure.
    """
    states = {trial["state"] for trial in facts["trials"]}
    if facts["best"] is not None:
        return ExitCode.DONE
    if states == {TrialState.FAILED.value}:
        return ExitCode.RUN_ERROR
    return ExitCode.DONE if is_cut_short else ExitCode.NO_FEASIBLE_TRIAL


@contextmanager
def _ended_on_error(
    place: Place, mirror: MlflowMirror | None, opened: OpenStudy
) -> Generator[None]:
    """A search that ends in an error ends its MLflow run as well, unless others go on with it."""
    try:
        yield
    except BaseException:
        is_last = leave(place.hold, place.membership, opened.turn)
        if mirror is not None:
            mirror.close("FAILED", is_last=is_last)
        raise
