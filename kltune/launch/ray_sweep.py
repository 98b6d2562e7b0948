"""``kltune sweep --on ray``: a spec in; a ``kltune worker`` on every GPU of a Ray cluster, and a finished study out.

This process trains nothing. It starts workers where there is room, replaces those that are lost with their
node, takes in nodes that join, and shows what the workers say. All that matters is in the study: should
this process die, the workers save their trials and end, and the same command goes on.
"""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from kltune.errors import EnvironmentMissingError, ExitCode, RunError
from kltune.launch import signals
from kltune.launch.fleet import Fleet
from kltune.launch.fleet_screen import FleetScreen
from kltune.launch.ray_cluster import Cluster, Shipment, connected
from kltune.launch.ray_worker import News, Place
from kltune.launch.request import SweepRequest
from kltune.launch.saying import say
from kltune.launch.status_facts import Standing, read_standing
from kltune.launch.stdout import reserved_stdout
from kltune.screen.ending import near
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec
from kltune.study.lock import move_aside

_NEWS_S: Final = 2.0
"""How long a worker that has nothing to say is listened to at a time."""
_LOOK_S: Final = 1.0
_LEAVE_S: Final = 45.0
"""How long workers may take to save their trials when the sweep is stopped."""
_ALONE_S: Final = 15.0
"""Between two notes that there is no node to work on."""


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """Which cluster, and what of it."""

    address: str | None = None
    """None: that of RAY_ADDRESS, one on this machine, or a new one."""
    gpus_per_worker: float | None = None
    """None: 1 where the cluster has any GPU, else 0."""


def run_on_ray(request: SweepRequest, where: ClusterRequest) -> ExitCode:
    """Run or resume the study of a request on a cluster; its last worker writes the report.

    Raises:
        SpecError: the spec, a path in it, or more files beside it than can be sent; nothing was started.
        StudyError: ``--fresh``, and another kltune works in the study.
        EnvironmentMissingError: no Ray, no cluster, or its nodes don't see the study's folder.
        RunError: workers fail again and again.
    """
    spec = request.load()
    check_paths(spec)
    shipment = Shipment.of(request.spec_path)
    stop = signals.StopRequest(
        spec.spec.budget.wall, lambda reason: say(f"{reason}: the workers save their trials ...")
    )
    try:
        with reserved_stdout(is_reserved=request.as_json) as result:
            study_path = request.folder(spec).absolute()
            # Not before: Ray puts handlers of its own in the place of those that are there.
            with connected(where.address, shipment) as cluster, stop.listening():
                code = _run(request, spec, where, cluster, shipment, stop)
            shown = result if request.as_json else None
            return _conclude(study_path, code, is_cut_short=stop() is not None, result=shown)
    except KeyboardInterrupt:
        say("stopped at once; finished trials and the last checkpoints are kept")
        return ExitCode.INTERRUPTED


def _run(
    request: SweepRequest,
    spec: LoadedSpec,
    where: ClusterRequest,
    cluster: Cluster,
    shipment: Shipment,
    stop: signals.StopRequest,
) -> ExitCode:
    study_path = request.folder(spec).absolute()
    if request.fresh and (old := move_aside(study_path)) is not None:
        say(f"moved the old study to {near(old)}")
    with _marker(study_path) as marker, FleetScreen(study_path.name) as screen:
        fleet = Fleet(_trials_left(study_path, spec), _share(where, cluster))
        environ = {k: v for k in ("KLTUNE_STORAGE",) if (v := os.environ.get(k))}
        words = worker_words(request, shipment.spec, study_path)
        return _Sweep(cluster, fleet, screen, study_path, words, environ, marker).run(stop)


def worker_words(request: SweepRequest, spec_path: Path, study_path: Path) -> tuple[str, ...]:
    """The words of a ``kltune worker`` that works on what a sweep was asked for.

    ``spec_path``: where the worker finds the spec.
    """
    words = ["worker", str(spec_path), "--study", str(study_path)]
    if request.storage is not None:
        words += ["--storage", request.storage]
    for override in (*request.overrides, *request.flags):
        words += ["--set", override]
    return tuple(words)


@dataclass(slots=True)
class _Sweep:
    cluster: Cluster
    fleet: Fleet
    screen: FleetScreen
    study_path: Path
    words: tuple[str, ...]
    environ: dict[str, str] = field(repr=False)
    """May hold a password: it goes to the actors as what they are made with, and on to workers as their environment."""
    marker: str
    actors: dict[int, Any] = field(default_factory=dict[int, Any])
    calls: dict[Any, int] = field(default_factory=dict[Any, int])
    """The call that each worker is to answer next."""
    last_said: dict[int, str] = field(default_factory=dict[int, str])
    told_alone: float = 0.0

    def run(self, stop: signals.StopRequest) -> ExitCode:
        """Until the study is settled, or there is a reason to stop."""
        try:
            while (reason := stop()) is None:
                self._fill()
                if not self.fleet.running and (self.fleet.is_settled or self.fleet.gave_up):
                    break
                self._listen(_LOOK_S)
                self.screen.show(self.fleet, self._standing())
        finally:
            self._dismiss()
        if reason in signals.EXIT_CODES:
            return signals.EXIT_CODES[reason]
        if self.fleet.gave_up is not None and not self.fleet.is_settled:
            kind = (
                EnvironmentMissingError if self.fleet.refusal is ExitCode.ENVIRONMENT else RunError
            )
            raise kind(self.fleet.gave_up)
        return ExitCode.DONE

    def _fill(self) -> None:
        nodes = self.cluster.nodes()
        for node in self.fleet.places(nodes):
            number = self.fleet.start(node)
            actor = self.cluster.start(node, self.fleet.gpus, self.words, self.environ, self.marker)
            self.actors[number] = actor
            self.calls[actor.place.remote()] = number
            self.screen.line(number, f"starts on node {node[:8]}")
        if not self.fleet.running and not nodes and time.monotonic() - self.told_alone > _ALONE_S:
            self.told_alone = time.monotonic()
            say("the cluster has no living node; waiting for one to join")

    def _listen(self, seconds: float) -> None:
        if not self.calls:
            time.sleep(seconds)
            return
        for ref in self.cluster.ready(list(self.calls), seconds):
            number = self.calls.pop(ref)
            found = self.cluster.answer(ref)
            if isinstance(found, Place):
                devices = f", GPU {found.devices}" if found.devices else ""
                self.screen.line(number, f"is process {found.pid}{devices}")
            elif isinstance(found, News):
                self._take(number, found)
                if found.code is not None:
                    self._lose(number, found.code, self.last_said.get(number, "it said nothing"))
                    continue
            else:
                self._lose(number, None, str(found))
                continue
            self.calls[self.actors[number].news.remote(_NEWS_S)] = number

    def _take(self, number: int, news: News) -> None:
        for line in news.lines:
            self.last_said[number] = line
            self.screen.line(number, line)

    def _lose(self, number: int, code: int | None, words: str) -> None:
        self.cluster.drop(self.actors.pop(number))
        standing = self._standing()
        ended = 0 if standing is None else standing.num_counted
        self.screen.line(None, self.fleet.ended(number, code, words, ended))

    def _dismiss(self) -> None:
        """Let every worker save its trials; whoever is not gone by then goes with its actor."""
        if self.actors:
            for actor in self.actors.values():
                actor.stop.remote()
            until = time.monotonic() + _LEAVE_S
            waiting = {actor.finish.remote(): number for number, actor in self.actors.items()}
            while waiting and time.monotonic() < until:
                for ref in self.cluster.ready(list(waiting), _LOOK_S):
                    number, found = waiting.pop(ref), self.cluster.answer(ref)
                    if isinstance(found, News):
                        self._take(number, found)
        for actor in self.actors.values():
            self.cluster.drop(actor)

    def _standing(self) -> Standing | None:
        """Where the study stands; none before a worker has made it."""
        if not (self.study_path / "resolved.json").is_file():
            return None
        return read_standing(self.study_path)


def _share(where: ClusterRequest, cluster: Cluster) -> float:
    """GPUs of one worker."""
    total = sum(resources.get("GPU", 0.0) for resources in cluster.nodes().values())
    wanted = where.gpus_per_worker
    if wanted is None:
        return 1.0 if total else 0.0
    if wanted > 0 and not total:
        say("note: no node of the cluster has a GPU now; waiting for one that has")
    return wanted


def _trials_left(study_path: Path, spec: LoadedSpec) -> int:
    trials = spec.spec.budget.trials
    if not (study_path / "resolved.json").is_file():
        return trials
    return max(1, trials - read_standing(study_path).num_counted)


def _conclude(
    study_path: Path, code: ExitCode, *, is_cut_short: bool, result: TextIO | None
) -> ExitCode:
    """Say what came out; an interruption's code stays as it is."""
    if not (study_path / "resolved.json").is_file():
        return code
    # With what they import: not while the cluster is at work.
    from kltune.launch.member import verdict_of, write_result
    from kltune.report.summary import summary

    facts = summary(study_path)
    if result is not None:
        write_result(result, facts)
    say(f"kltune status {shlex.quote(str(near(study_path)))}")
    report = study_path / "report.html"
    say(f"report: {near(report)}" if report.is_file() else "no report was written")
    return code if code is not ExitCode.DONE else verdict_of(facts, is_cut_short=is_cut_short)


@contextmanager
def _marker(study_path: Path) -> Generator[str]:
    """A file beside the study by which a worker knows that its node shares the folder."""
    study_path.parent.mkdir(parents=True, exist_ok=True)
    marker = study_path.parent / f".kltune-{secrets.token_hex(4)}"
    marker.touch()
    try:
        yield str(marker)
    finally:
        marker.unlink(missing_ok=True)
