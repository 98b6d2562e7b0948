"""The way into a study in, one more member's share of its search out; whoever comes first sets the study up.

The heavy half of ``kltune worker``: importing this loads torch, Optuna and MLflow's client.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from kltune.errors import ExitCode, StudyError
from kltune.launch import signals
from kltune.launch.assemble import find_inputs
from kltune.launch.disk import refuse_full_disk
from kltune.launch.inputs import check_inputs, fingerprints
from kltune.launch.join import Entrance, spec_of_folder
from kltune.launch.member import Place, is_settled, settled_code, take_part
from kltune.launch.request import JoinRequest
from kltune.launch.saying import say
from kltune.launch.set_up import get_ready, is_set_up, plan_words, scale_words, write_down
from kltune.launch.status_words import members_words
from kltune.metrics.jsonl import read_json
from kltune.metrics.tracker import check_experiment, resolve_tracker
from kltune.screen.ending import near
from kltune.spec.load import LoadedSpec, resolved
from kltune.study.address import resolve_address
from kltune.study.crew import Membership, join, others
from kltune.study.holder import find_holder
from kltune.study.lock import Hold, enter_study
from kltune.study.storage import check_study, open_study

_SEARCHING = ("", "kltune sweep", "kltune worker", "kltune ray")
"""Commands that set a study up; others work in one that is."""


def run_worker(
    request: JoinRequest, entrance: Entrance, stop: signals.StopRequest, result: TextIO
) -> ExitCode:
    """Work on a study until it is settled or ``stop`` says so; JSON goes to ``result``.

    Raises:
        SpecError: prompts, scorers or a model that can't be used.
        StudyError: no study, one of another spec, or one that another command holds.
        EnvironmentMissingError: this machine lacks what the study needs.
    """
    path, given = entrance.study_path, entrance.given
    with enter_study(path, lambda: _is_joined(path, given), _waiting(path, stop)) as hold:
        if hold is None:
            return _stopped(stop)
        worker = _Worker(request, entrance, hold, result if request.as_json else None)
        return worker.run(stop)


@dataclass(frozen=True, slots=True)
class _Worker:
    request: JoinRequest
    entrance: Entrance
    hold: Hold
    """Shared: the study is set up. Alone: it is this process that sets it up."""
    result: TextIO | None

    def run(self, stop: signals.StopRequest) -> ExitCode:
        path, given = self.entrance.study_path, self.entrance.given
        is_first = not self.hold.is_shared
        spec = (
            given if is_first and given is not None else spec_of_folder(path, self.request, given)
        )
        address = resolve_address(path, spec.spec, self.request.storage, os.environ)
        inputs = find_inputs(spec)
        prints = fingerprints(inputs.task, inputs.source)
        check_study(path, (given or spec).spec, address)
        check_inputs(path, prints)
        stop.limit(spec.spec.budget.wall)
        tracker = resolve_tracker(path, spec.spec.tracking.mlflow, os.environ)
        if spec.spec.tracking.enabled:
            check_experiment(tracker, spec.spec.name)
        with join(path, "worker") as membership:
            _greet(path, spec, membership, str(address), is_first=is_first)
            place = Place(spec, path, inputs, tracker, self.result, self.hold, membership)
            if not is_first and is_settled(path, spec.spec, address):
                say("the study is settled: nothing is left to run")
                return settled_code(place)
            ready = get_ready(spec, inputs, prints, path)
            refuse_full_disk(path, ready.disk)
            if stop() is not None:
                return _stopped(stop)
            opened = open_study(path, spec.spec, address)
            if is_first:
                write_down(opened, spec, inputs, ready, ("kltune", *sys.argv[1:]))
                say(scale_words(ready.scale))
            self.hold.share()
            return take_part(place, opened, ready, stop)


def _is_joined(study_path: Path, given: LoadedSpec | None) -> bool:
    """Whether the study is set up, and as it should be: a changed budget is written down by whoever is first."""
    if not is_set_up(study_path):
        return False
    if given is None or others(study_path):
        return True
    kept = read_json(study_path / "resolved.json")
    return _without_slots(kept) == _without_slots(resolved(given.spec))


def _without_slots(facts: dict[str, object]) -> dict[str, object]:
    """What members have in common; each has slots of its own."""
    budget = facts.get("budget")
    common = {k: v for k, v in budget.items() if k != "slots"} if isinstance(budget, dict) else None
    return {**facts, "budget": common}


def _waiting(study_path: Path, stop: signals.StopRequest) -> Callable[[], bool]:
    """Whether to go on waiting for whoever holds the study alone; says once for whom."""
    said = False

    def wait() -> bool:
        nonlocal said
        if stop() is not None:
            return False
        if not said:
            holder = find_holder(study_path)
            if holder.command not in _SEARCHING:
                raise StudyError(
                    f"{holder.command} is working in {study_path} (process {holder.pid}); wait for it or stop it"
                )
            if holder.state != "held":
                return True  # it has just begun, or is gone
            said = True
            say(f"{near(study_path)}: process {holder.pid} is setting it up; waiting ...")
        return True

    return wait


def _greet(
    study_path: Path, spec: LoadedSpec, membership: Membership, where: str, *, is_first: bool
) -> None:
    found = find_holder(study_path).crew
    company = members_words([m for m in found if m.id != membership.member.id and m.is_alive])
    words = f"beside {company}" if company else "alone so far"
    own = membership.member.id
    say(
        f"worker {own} (process {os.getpid()}), {words}: works in {near(study_path)}, trials kept in {where}"
    )
    if is_first:
        say(f"it sets the study up: {plan_words(spec)}")


def _stopped(stop: signals.StopRequest) -> ExitCode:
    reason = stop()
    say(f"{reason}: no trial was started")
    return signals.EXIT_CODES.get(reason or "", ExitCode.DONE)
