"""A checked request in, a finished (or resumable) study out: set up, train, report.

The heavy half of ``kltune sweep``: importing this loads torch, Optuna and MLflow's client.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TextIO

from kltune.errors import ExitCode
from kltune.launch import signals
from kltune.launch.assemble import find_inputs
from kltune.launch.disk import refuse_full_disk
from kltune.launch.dry_run import dry_run
from kltune.launch.inputs import check_inputs, fingerprints
from kltune.launch.member import Place, take_part
from kltune.launch.request import SweepRequest
from kltune.launch.saying import say
from kltune.launch.set_up import get_ready, plan_words, scale_words, write_down
from kltune.metrics.tracker import check_experiment, resolve_tracker
from kltune.screen.ending import near
from kltune.spec.load import LoadedSpec
from kltune.study.address import resolve_address
from kltune.study.crew import join
from kltune.study.lock import claim_study
from kltune.study.storage import check_study, open_study


def run_session(
    request: SweepRequest, spec: LoadedSpec, stop: signals.StopRequest, result: TextIO
) -> ExitCode:
    """Run or resume the study of a request whose spec is sound; JSON goes to ``result``.

    Nothing but the lock is put into the study folder before model, prompts and proxy have shown that they
    work. The study is held alone until it is set up; then workers may join.

    Raises:
        SpecError: prompts, scorers or a model that can't be used; nothing was started.
        StudyError: the folder belongs to another spec or is in use; nothing was changed.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    study_path = request.folder(spec)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S") if request.fresh else None
    address = resolve_address(study_path, spec.spec, request.storage, os.environ, fresh=stamp)
    inputs = find_inputs(spec)
    tracker = resolve_tracker(study_path, spec.spec.tracking.mlflow, os.environ)
    prints = fingerprints(inputs.task, inputs.source)
    if not request.fresh:
        check_study(study_path, spec.spec, address)
        check_inputs(study_path, prints)
    shown = result if request.as_json else None
    if request.dry_run:
        return dry_run(spec, study_path, inputs, shown)
    if spec.spec.tracking.enabled and not (tracker.is_own and request.fresh):
        check_experiment(tracker, spec.spec.name)
    # Before anything of the study is read or loaded, whether or not its folder exists.
    with claim_study(study_path, fresh=request.fresh) as claim:
        if not request.fresh:  # again: another kltune may just have left
            check_study(study_path, spec.spec, address)
            check_inputs(study_path, prints)
        say(f"{near(study_path)}: {plan_words(spec)}")
        if address.is_server:
            say(f"trials are kept in {address}")
        ready = get_ready(spec, inputs, prints, None if request.fresh else study_path)
        refuse_full_disk(study_path, ready.disk)
        if (reason := stop()) is not None:
            say(f"{reason}: no trial was started")
            return signals.EXIT_CODES.get(reason, ExitCode.DONE)
        if (old := claim.make_room()) is not None:
            say(f"moved the old study to {near(old)}")
        with join(study_path, "sweep") as membership:
            opened = open_study(study_path, spec.spec, address)
            command = request.command or ("kltune", *sys.argv[1:])
            write_down(opened, spec, inputs, ready, command)
            say(scale_words(ready.scale))
            claim.hold.share()
            place = Place(spec, study_path, inputs, tracker, shown, claim.hold, membership)
            return take_part(place, opened, ready, stop)
