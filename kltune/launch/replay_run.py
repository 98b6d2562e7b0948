"""A replay's plan in; the trial trained again step by step, compared and shown out.

The heavy half of ``kltune replay``: importing this loads torch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console

from kltune.errors import ExitCode, OutOfMemoryFault, RunError, StudyError, TrialFault
from kltune.launch import signals
from kltune.launch.assemble import build_bank, find_inputs, load_ground, reference_scale
from kltune.launch.inputs import changed_inputs, fingerprints
from kltune.launch.proxy import folder_of
from kltune.launch.replay import REPLAYS, ReplayPlan
from kltune.launch.replay_rerun import Rerun
from kltune.launch.replay_threads import replay_threads
from kltune.launch.saying import say
from kltune.launch.threads import torch_threads
from kltune.metrics.env import environment
from kltune.metrics.jsonl import encode, read_json, write_json
from kltune.metrics.record import RewardScale
from kltune.metrics.rows import EVALS, STEPS
from kltune.replay.compare import Comparison, compare_trials
from kltune.replay.result import ReplayResult
from kltune.replay.surroundings import changed_surroundings
from kltune.replay.table import replay_table
from kltune.spec.task import LearnedProxySpec
from kltune.trainer.bank import Bank
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import StopReason, Verdict
from kltune.trial.record import TrialRecord, read_trial
from kltune.trial.words import setting_long

FILE = "replay.json"
"""The comparison, in the replay's folder."""


def run_plan(plan: ReplayPlan, stop: signals.StopRequest, result: TextIO) -> ExitCode:
    """Carry out a plan; JSON or the table goes to ``result``.

    Raises:
        StudyError: prompts, scorers or the model changed since the study.
        SpecError: a model or a task that can't be used.
        RunError: the results can't be written.
    """
    began = time.perf_counter()
    with ExitStack() as held:
        threads, notes = replay_threads(plan)
        held.enter_context(torch_threads(threads))
        ready = _ready(plan, notes)
        if (reason := stop()) is not None:
            say(f"{reason}: nothing was run")
            return signals.EXIT_CODES[reason]
        folder = _claim(plan)
        say(f"running trial {plan.record.number} again, {plan.steps} steps, into {folder.path} ...")
        rerun = Rerun(plan, ready.bank, folder)
        verdict = _run(rerun, ready, stop)
    found = _result(plan, ready, rerun, verdict, time.perf_counter() - began)
    _show(found, folder.path, result, as_json=plan.request.as_json)
    if verdict.reason is StopReason.INTERRUPTED:
        return signals.EXIT_CODES.get(verdict.detail, ExitCode.INTERRUPTED)
    is_broken = verdict.reason in (StopReason.ERROR, StopReason.OUT_OF_MEMORY)
    return ExitCode.RUN_ERROR if is_broken else ExitCode.DONE


@dataclass(frozen=True, slots=True)
class _Ready:
    bank: Bank
    scale: RewardScale
    notes: tuple[str, ...]
    surroundings: tuple[str, ...]


def _ready(plan: ReplayPlan, notes: Sequence[str]) -> _Ready:
    """Load what the study trained with.

    Raises:
        StudyError: it is not what it was.
    """
    study, spec = plan.request.study_path, plan.spec.spec
    inputs = find_inputs(plan.spec)
    changed = changed_inputs(study, fingerprints(inputs.task, inputs.source))
    if changed:
        raise StudyError(
            f"{study}: {', '.join(changed)} changed since this study began, so its trials can't be run again; "
            "put it back as it was"
        )
    own = [*notes, *_notes(plan)]
    is_learned = isinstance(inputs.task.proxy, LearnedProxySpec)
    if is_learned and not (folder_of(study) / "reward.json").is_file():
        own.append(
            "the proxy that this study learned is gone (artifacts/proxy); it was learned again, and may differ"
        )
    say("loading the model and getting the proxy ready ...")
    ground = load_ground(spec, inputs, study)
    scale = reference_scale(ground, spec, study)
    if plan.record.sigma_r is not None and plan.record.sigma_r != scale.sigma:
        own.append(
            f"sigma_R is {scale.sigma:.6g} here and was {plan.record.sigma_r:.6g} in the record, "
            "so coefficients differ"
        )
    path = study / "env.json"
    recorded = read_json(path) if path.is_file() else {}
    surroundings = changed_surroundings(recorded, environment(ground.loaded.device_facts()))
    return _Ready(build_bank(ground, spec, scale, slots=1), scale, tuple(own), surroundings)


def _notes(plan: ReplayPlan) -> list[str]:
    spec, notes = plan.spec.spec, list[str]()
    whole = spec.trainer.steps
    if plan.steps > whole:
        notes.append(
            f"steps {whole + 1} to {plan.steps} lie beyond the study's {whole}: whatever follows the clock "
            "(schedules, staged targets) stays at its end"
        )
    elif plan.only_warns and plan.steps != whole:
        notes.append(f"whatever follows the clock goes by the study's {whole} steps")
    if plan.only_warns:
        notes.append("guards only warn, since --steps was given")
    if spec.guards.wall is not None:
        notes.append("the wall-clock limit of a trial is not applied")
    attempts = plan.record.attempt
    if attempts > 1:
        notes.append(f"the record is of {attempts} attempts; the steps that count are compared")
    if plan.record.outcome is None:
        notes.append("the record has no end: the trial still runs, or its process died")
    return notes


def _claim(plan: ReplayPlan) -> TrialFolder:
    """Make the folder: ``00007``, or ``00007-2`` and so on where that is taken.

    Raises:
        RunError: it can't be made.
    """
    number, out = plan.record.number, plan.request.out
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            return TrialFolder(out.absolute().parent, number, 1, under="", name=out.absolute().name)
        study = plan.request.study_path
        usual = f"{number:05d}"
        for name in itertools.chain([usual], (f"{usual}-{i}" for i in itertools.count(2))):
            path = study / REPLAYS / name
            path.parent.mkdir(exist_ok=True)
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return TrialFolder(study, number, 1, under=REPLAYS, name=name)
    except OSError as error:
        raise RunError(f"no folder for the replay can be made: {error}") from error
    raise AssertionError("names don't run out")


def _run(rerun: Rerun, ready: _Ready, stop: signals.StopRequest) -> Verdict:
    """Run to the end, whatever it is, and keep what continues the trial.

    Raises:
        RunError: the disk is full, or the like.
    """
    rerun.start(ready.scale.sigma)
    try:
        verdict = rerun.run(stop)
    except OutOfMemoryFault as fault:
        verdict = Verdict(StopReason.OUT_OF_MEMORY, str(fault))
    except TrialFault as fault:
        verdict = Verdict(StopReason.ERROR, str(fault))
    except OSError as error:
        raise RunError(f"the replay can't be written: {error}") from error
    rerun.end(verdict)
    return verdict


def _result(
    plan: ReplayPlan, ready: _Ready, rerun: Rerun, verdict: Verdict, seconds: float
) -> ReplayResult:
    record, spec = plan.record, plan.spec.spec
    own = read_trial(rerun.folder.path)
    comparison = compare_trials((record.steps, record.evals), (own.steps, own.evals))
    notes = [*ready.notes, *(f"guard: {warning.detail}" for warning in own.warnings)]
    if plan.request.trace is not None and rerun.traced is None:
        notes.append(f"step {plan.request.trace}, which was to be traced, was not reached")
    if comparison.only_replayed:
        notes.append(f"not in the record, so not compared: {', '.join(comparison.only_replayed)}")
    return ReplayResult(
        study=spec.name,
        trial=record.number,
        setting=setting_long(record.setting, spec.beta_unit, spec.kl_unit, spec.trainer.credit),
        folder=rerun.folder.path,
        steps_recorded=plan.steps_recorded,
        steps_asked=plan.steps,
        steps_run=rerun.step,
        reason=verdict.reason.value,
        detail=verdict.detail,
        recorded_end="" if record.outcome is None else record.outcome.verdict.detail,
        comparison=comparison,
        surroundings=ready.surroundings,
        notes=tuple(notes),
        traced=rerun.traced,
        gold=_last_gold(comparison, record, own),
        seconds=seconds,
    )


def _last_gold(
    comparison: Comparison, record: TrialRecord, own: TrialRecord
) -> tuple[float | None, float | None, float | None] | None:
    """Recorded, replayed and the recorded standard error at the last evaluation of both."""
    steps = [one.step for one in comparison.compared if one.kind == "evaluation"]
    if not steps:
        return None
    mine, theirs = (
        next(row for row in rows if row["step"] == max(steps)) for rows in (record.evals, own.evals)
    )
    return mine.get("eval/gold"), theirs.get("eval/gold"), mine.get("eval/gold_se")


def _show(found: ReplayResult, folder: Path, result: TextIO, *, as_json: bool) -> None:
    facts = found.as_json()
    # Shown before it is written: a full disk must not cost the answer.
    if as_json:
        result.write(encode(facts) + "\n")
        result.flush()
    else:
        Console(file=result).print(replay_table(found))
    try:
        write_json(folder / FILE, facts)
    except OSError as error:
        raise RunError(f"{folder}: the comparison can't be written there: {error}") from error
    traced = () if found.traced is None else found.traced.files
    files = [FILE, STEPS, EVALS, *(path.name for path in traced)]
    say(f"in {folder}: {', '.join(files)}")
