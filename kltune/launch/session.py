"""A checked request in, a finished (or resumable) study out: open, train, report.

The heavy half of ``kltune sweep``: importing this loads torch, Optuna and MLflow's client.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from kltune.errors import ExitCode, StudyError
from kltune.launch import signals
from kltune.launch.assemble import (
    Ground,
    Inputs,
    find_inputs,
    keep_scale,
    load_ground,
    reference_scale,
)
from kltune.launch.calibrate import Site, placed_bank
from kltune.launch.check_probes import refuse_unsound
from kltune.launch.dry_run import dry_run
from kltune.launch.inputs import check_inputs, fingerprints, note_inputs
from kltune.launch.judges import keep_judges
from kltune.launch.placement import Calibration
from kltune.launch.proxy import keep_proxy
from kltune.launch.request import SweepRequest
from kltune.launch.saying import say
from kltune.launch.timing import note_session
from kltune.launch.watching import MirrorObserver
from kltune.metrics.env import write_env
from kltune.metrics.jsonl import write_json
from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.payload import DatasetFacts
from kltune.metrics.record import RewardScale
from kltune.metrics.tracker import Tracker, check_experiment, redact, reroot, resolve_tracker
from kltune.report.build import ReportPaths, build_report
from kltune.report.summary import summary
from kltune.screen.ending import final_summary, near
from kltune.screen.progress import Scope
from kltune.screen.watch import open_screen
from kltune.spec.doubts import find_doubts
from kltune.spec.load import LoadedSpec, resolved
from kltune.study.ledger import Ledger
from kltune.study.lock import claim_study
from kltune.study.loop import run_search
from kltune.study.sampler import plan_search
from kltune.study.search_end import SearchEnd
from kltune.study.space import fixed_trials
from kltune.study.storage import OpenStudy, check_study, open_study
from kltune.trial.outcome import TrialState
from kltune.trial.words import limit_words


def run_session(
    request: SweepRequest, spec: LoadedSpec, stop: signals.StopRequest, result: TextIO
) -> ExitCode:
    """Run or resume the study of a request whose spec is sound; JSON goes to ``result``.

    Nothing but the lock is put into the study folder before model, prompts and proxy have shown that they work.

    Raises:
        SpecError: prompts, scorers or a model that can't be used; nothing was started.
        StudyError: the folder belongs to another spec or is in use; nothing was changed.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    study_path = request.folder(spec)
    inputs = find_inputs(spec)
    tracker = resolve_tracker(study_path, spec.spec.tracking.mlflow, os.environ)
    prints = fingerprints(inputs.task, inputs.source)
    if not request.fresh:
        check_study(study_path, spec.spec)
        check_inputs(study_path, prints)
    if request.dry_run:
        return dry_run(spec, study_path, inputs, result if request.as_json else None)
    if spec.spec.tracking.enabled and not (tracker.is_own and request.fresh):
        check_experiment(tracker, spec.spec.name)
    # Before anything of the study is read or loaded, whether or not its folder exists.
    with claim_study(study_path, fresh=request.fresh) as make_room:
        if not request.fresh:  # again: another kltune may just have left
            check_study(study_path, spec.spec)
            check_inputs(study_path, prints)
        say(f"{near(study_path)}: {plan_search(spec.spec).describe()}")
        splits = inputs.task.splits
        for doubt in (*find_doubts(spec.spec), *splits.doubts, *splits.notes):
            say(f"note: {doubt}")
        say("loading the model and getting the proxy ready ...")
        old_folder = None if request.fresh else study_path
        ground = load_ground(spec.spec, inputs, old_folder)
        scale = reference_scale(ground, spec.spec, old_folder)
        refuse_unsound(ground, spec.spec, splits)
        if (reason := stop()) is not None:
            say(f"{reason}: no trial was started")
            return signals.EXIT_CODES.get(reason, ExitCode.DONE)
        if (old := make_room()) is not None:
            say(f"moved the old study to {near(old)}")
        command = request.command or ("kltune", *sys.argv[1:])
        shown = result if request.as_json else None
        session = _Session(spec, study_path, inputs, tracker, shown, command)
        return session.run(Ready(ground, scale, prints), stop)


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything that works before the study folder is touched."""

    ground: Ground
    scale: RewardScale
    prints: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Session:
    """One session in a study that this process holds."""

    spec: LoadedSpec
    study_path: Path
    inputs: Inputs
    tracker: Tracker
    result: TextIO | None
    """Where the JSON goes, if it was asked for."""
    command: tuple[str, ...]
    """What starts the same study again."""

    def run(self, ready: Ready, stop: signals.StopRequest) -> ExitCode:
        """Open, train, report."""
        opened = open_study(self.study_path, self.spec.spec)
        try:
            self._write_spec(ready)
            end, calibration, mirror = self._search(opened, ready, stop)
        finally:
            opened.close()
        return self._conclude(end, calibration, mirror)

    def _write_spec(self, ready: Ready) -> None:
        folder = self.study_path
        (folder / "spec.yaml").write_text(redact(self.spec.text), encoding="utf-8")
        facts = resolved(self.spec.spec)
        if facts["tracking"]["mlflow"] is not None:
            facts["tracking"]["mlflow"] = redact(facts["tracking"]["mlflow"])
        write_json(folder / "resolved.json", facts)
        write_env(folder, ready.ground.loaded.device_facts(), self.command)
        note_inputs(folder, ready.prints, self.inputs.task)
        keep_proxy(self.inputs.task, ready.ground.data.proxy, folder)
        keep_scale(folder, ready.scale)
        keep_judges(ready.ground.data, folder)

    def _start_mirror(self) -> MlflowMirror | None:
        spec = self.spec.spec
        if not spec.tracking.enabled:
            return None
        if self.tracker.is_own:
            self._open_own_tracker()
        mirror = MlflowMirror(self.study_path, self.tracker, spec.name, self._datasets())
        mirror.start()
        return mirror

    def _open_own_tracker(self) -> None:
        """Point a moved study's MLflow database at this folder; a broken one makes way, and is refilled."""
        try:
            reroot(self.study_path)
        except StudyError as error:
            broken = self.study_path / "mlflow.db"
            aside = broken.with_name(f"mlflow.db.broken-{int(time.time())}")
            broken.rename(aside)
            say(f"note: {error}; moved to {aside.name}, a new one is filled from the record")

    def _datasets(self) -> list[DatasetFacts]:
        task = self.inputs.task
        splits = {
            "train": task.splits.train,
            "select": task.splits.select,
            "test": task.splits.test,
        }
        return [
            DatasetFacts(
                role, task.name, task.digests[role], len(prompts), source=task.source or task.name
            )
            for role, prompts in splits.items()
        ]

    def _search(
        self, opened: OpenStudy, ready: Ready, stop: signals.StopRequest
    ) -> tuple[SearchEnd, Calibration, MlflowMirror | None]:
        spec, scale = self.spec.spec, ready.scale
        say(
            f"sigma_R {scale.sigma:.4g}: spread of the proxy within a prompt, under the reference "
            f"({scale.num_groups} prompts, {scale.mean_tokens:.1f} tokens per completion)"
        )
        ledger = Ledger(opened, fixed_trials(spec, scale))
        site = Site(self.spec, ready.ground, scale, self.study_path, should_stop=stop)
        is_over = ledger.num_ended() >= spec.budget.trials
        with placed_bank(site, is_over=is_over) as (bank, calibration):
            # Not before: its thread imports MLflow, and that would be in the calibration.
            mirror = self._start_mirror()
            with (
                _ended_on_error(mirror),
                open_screen(self._scope(ledger), is_plain=self.result is not None) as screen,
            ):
                observers = [screen, *([MirrorObserver(mirror)] if mirror else [])]
                end = run_search(bank, ledger, scale.sigma, observers, stop)
                return end, calibration, mirror

    def _scope(self, ledger: Ledger) -> Scope:
        spec = self.spec.spec
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

    def _conclude(
        self, end: SearchEnd, calibration: Calibration, mirror: MlflowMirror | None
    ) -> ExitCode:
        busy_s = 0.0 if mirror is None else mirror.busy_s
        timing = note_session(self.study_path, end, busy_s, calibration)
        paths = build_report(self.study_path)
        if mirror is not None:
            mirror.log_study(
                {"study/bookkeeping_frac": timing["bookkeeping_frac"]}, end.trials_ended
            )
            was_stopped = end.reason in signals.EXIT_CODES
            # A busy machine can take long to import MLflow; its own sqlite file can't hang.
            patience_s = 60.0 if self.tracker.is_own and not was_stopped else 15.0
            mirror.close(
                "KILLED" if was_stopped else "FINISHED",
                artifacts=[paths.html, paths.markdown, paths.json],
                timeout_s=patience_s,
            )
        facts = summary(self.study_path)
        if end.reason is not None:
            say(f"{end.reason}: the same command goes on from here")
        self._show(facts, paths, timing)
        if end.reason in signals.EXIT_CODES:
            return signals.EXIT_CODES[end.reason]
        return verdict_of(facts, is_cut_short=end.reason is not None)

    def _show(
        self, facts: Mapping[str, Any], paths: ReportPaths, timing: Mapping[str, float]
    ) -> None:
        if self.result is not None:
            self.result.write(json.dumps({"schema": 1, **facts}, allow_nan=False) + "\n")
            self.result.flush()
        files = [paths.html, paths.markdown, paths.json, self.study_path / "trials"]
        ending = final_summary(
            facts,
            files,
            next_command=self._next_command(),
            bookkeeping_frac=timing["bookkeeping_frac"],
        )
        Console(stderr=True).print(ending)

    def _next_command(self) -> str:
        return f"kltune ui {shlex.quote(str(near(self.study_path)))}"


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
def _ended_on_error(mirror: MlflowMirror | None) -> Generator[None]:
    """A search that ends in an error ends its MLflow run as well."""
    try:
        yield
    except BaseException:
        if mirror is not None:
            mirror.close("FAILED")
        raise
