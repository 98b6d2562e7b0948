"""A checked request in, a finished (or resumable) study out: open, train, report.

The heavy half of ``kltune sweep``: importing this loads torch, Optuna and MLflow's client.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from kltune.errors import ExitCode
from kltune.launch import signals
from kltune.launch.assemble import (
    Ground,
    Inputs,
    build_bank,
    find_inputs,
    load_ground,
    reference_scale,
)
from kltune.launch.dry_run import dry_run
from kltune.launch.request import SweepRequest
from kltune.launch.timing import note_session
from kltune.launch.watching import MirrorObserver
from kltune.metrics.env import write_env
from kltune.metrics.jsonl import write_json
from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.payload import DatasetFacts
from kltune.metrics.tracker import Tracker, check_experiment, reroot, resolve_tracker
from kltune.report.build import ReportPaths, build_report
from kltune.report.summary import summary
from kltune.screen.ending import final_summary, near
from kltune.screen.progress import Scope
from kltune.screen.watch import open_screen
from kltune.spec.checks import find_doubts
from kltune.spec.load import LoadedSpec, resolved
from kltune.study.ledger import Ledger
from kltune.study.lock import lock_study, move_aside
from kltune.study.loop import SearchEnd, run_search
from kltune.study.sampler import plan_search
from kltune.study.space import fixed_trials
from kltune.study.storage import OpenStudy, check_study, open_study
from kltune.trial.outcome import TrialState

DIGEST_LENGTH = 32
"""MLflow takes digests of up to 36 characters."""


def run_session(request: SweepRequest, spec: LoadedSpec) -> ExitCode:
    """Run or resume the study of a request whose spec is sound.

    Raises:
        SpecError: prompts or scorers that can't be used; nothing was started.
        StudyError: the folder belongs to another spec or is in use; nothing was changed.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    study_path = request.folder(spec)
    inputs = find_inputs(spec)
    tracker = resolve_tracker(study_path, spec.spec.tracking.mlflow, os.environ)
    if not request.fresh:
        check_study(study_path, spec.spec)
    if request.dry_run:
        return dry_run(spec, study_path, inputs, as_json=request.as_json)
    if spec.spec.tracking.enabled and not (tracker.is_own and request.fresh):
        check_experiment(tracker, spec.spec.name)
    if request.fresh and (old := move_aside(study_path)) is not None:
        say(f"moved the old study to {near(old)}")
    with lock_study(study_path):
        return _Session(spec, study_path, inputs, tracker, request.as_json).run()


def say(text: str) -> None:
    """One line to the person; stdout is left to the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class _Session:
    """One session in a study that this process holds."""

    spec: LoadedSpec
    study_path: Path
    inputs: Inputs
    tracker: Tracker
    as_json: bool

    def run(self) -> ExitCode:
        """Open, train, report."""
        spec = self.spec.spec
        opened = open_study(self.study_path, spec)
        try:
            return self._run(opened)
        finally:
            opened.close()

    def _run(self, opened: OpenStudy) -> ExitCode:
        spec = self.spec.spec
        self._write_spec()
        for doubt in find_doubts(spec):
            say(f"note: {doubt}")
        say(f"{near(self.study_path)}: {plan_search(spec).describe()}")
        stop = signals.StopRequest(
            spec.budget.wall, lambda reason: say(f"{reason}: saving the running trials ...")
        )
        with stop.listening():
            say("loading the model and getting the proxy ready ...")
            ground = load_ground(spec, self.inputs, self.study_path)
            write_env(self.study_path, ground.loaded.device_facts(), ("kltune", *sys.argv[1:]))
            mirror = self._start_mirror()
            end = self._search(opened, ground, mirror, stop)
            return self._conclude(end, mirror)

    def _write_spec(self) -> None:
        (self.study_path / "spec.yaml").write_text(self.spec.text, encoding="utf-8")
        write_json(self.study_path / "resolved.json", resolved(self.spec.spec))

    def _start_mirror(self) -> MlflowMirror | None:
        spec = self.spec.spec
        if not spec.tracking.enabled:
            return None
        if self.tracker.is_own:
            reroot(self.study_path)
        mirror = MlflowMirror(self.study_path, self.tracker, spec.name, self._datasets())
        mirror.start()
        return mirror

    def _datasets(self) -> list[DatasetFacts]:
        task = self.inputs.task
        splits = {
            "train": task.splits.train,
            "select": task.splits.select,
            "test": task.splits.test,
        }
        return [
            DatasetFacts(
                role, task.name, task.digests[role][:DIGEST_LENGTH], len(prompts), source=task.name
            )
            for role, prompts in splits.items()
        ]

    def _search(
        self,
        opened: OpenStudy,
        ground: Ground,
        mirror: MlflowMirror | None,
        stop: signals.StopRequest,
    ) -> SearchEnd:
        spec = self.spec.spec
        with _ended_on_error(mirror):
            scale = reference_scale(ground, spec, self.study_path)
            say(
                f"sigma_R {scale.sigma:.4g}: spread of the proxy within a prompt, under the reference "
                f"({scale.num_groups} prompts, {scale.mean_tokens:.1f} tokens per completion)"
            )
            bank = build_bank(ground, spec, scale)
            ledger = Ledger(opened, fixed_trials(spec, scale))
            with open_screen(self._scope(ledger), is_plain=self.as_json) as screen:
                observers = [screen, *([MirrorObserver(mirror)] if mirror else [])]
                return run_search(bank, ledger, scale.sigma, observers, stop)

    def _scope(self, ledger: Ledger) -> Scope:
        spec = self.spec.spec
        best = ledger.best()
        return Scope(
            name=spec.name,
            trials=spec.budget.trials,
            steps=spec.trainer.steps,
            kl_unit=spec.kl_unit,
            beta_unit=spec.beta_unit,
            ended_before=ledger.num_ended(),
            best_before=None if best is None else (best.trial_number, best.value),
        )

    def _conclude(self, end: SearchEnd, mirror: MlflowMirror | None) -> ExitCode:
        timing = note_session(self.study_path, end, 0.0 if mirror is None else mirror.busy_s)
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
        return verdict_of(facts)

    def _show(
        self, facts: Mapping[str, Any], paths: ReportPaths, timing: Mapping[str, float]
    ) -> None:
        if self.as_json:
            sys.stdout.write(json.dumps({"schema": 1, **facts}, allow_nan=False) + "\n")
        files = [paths.html, paths.markdown, paths.json, self.study_path / "trials"]
        ending = final_summary(
            facts,
            files,
            next_command=self._next_command(),
            bookkeeping_frac=timing["bookkeeping_frac"],
        )
        Console(stderr=True).print(ending)

    def _next_command(self) -> str:
        if not (self.tracker.is_own and self.spec.spec.tracking.enabled):
            return f"kltune report {near(self.study_path)}"
        return f"mlflow ui --backend-store-uri sqlite:///{near(self.study_path)}/mlflow.db"


def verdict_of(facts: Mapping[str, Any]) -> ExitCode:
    """The exit code of a search that was not interrupted: failures alone are an error (design.md §6)."""
    states = {trial["state"] for trial in facts["trials"]}
    if facts["best"] is not None:
        return ExitCode.DONE
    only_failures = states == {TrialState.FAILED.value}
    return ExitCode.RUN_ERROR if only_failures else ExitCode.NO_FEASIBLE_TRIAL


@contextmanager
def _ended_on_error(mirror: MlflowMirror | None) -> Generator[None]:
    """A search that ends in an error ends its MLflow run as well."""
    try:
        yield
    except BaseException:
        if mirror is not None:
            mirror.close("FAILED")
        raise
