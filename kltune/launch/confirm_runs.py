"""A sound request in; missing runs trained, all judged on test, and the result shown out.

The heavy half of ``kltune confirm``: importing this loads torch.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TextIO

from kltune.confirm import words
from kltune.confirm.design import Design, refuse_hopeless
from kltune.confirm.looks import looks_words
from kltune.confirm.result import FOLDER
from kltune.errors import ExitCode
from kltune.launch import signals
from kltune.launch.assemble import Inputs, find_inputs, load_ground, reference_scale
from kltune.launch.calibrate import Site, placed_bank
from kltune.launch.confirm import Plan
from kltune.launch.confirm_design import seconds_needed
from kltune.launch.confirm_gold import second_gold
from kltune.launch.confirm_record import (
    Runs,
    find_runs,
)
from kltune.launch.confirm_show import Shown
from kltune.launch.inputs import check_inputs, fingerprints
from kltune.launch.saying import say
from kltune.metrics.jsonl import encode
from kltune.metrics.record import EvalMetrics
from kltune.study.repeat import RepeatEnd, Run, Where, repeat
from kltune.trainer.data import spread_evenly
from kltune.trial.words import duration

MOST_PROMPTS = 256
"""Test prompts that are used, evenly spread, where a task has more."""

_SAY_EVERY_S = 10.0


def run_plan(plan: Plan, stop: signals.StopRequest, result: TextIO) -> ExitCode:
    """Carry out a plan; JSON or the table goes to ``result``.

    Raises:
        SpecError: a second gold that can't be used, or a task without test prompts.
        StudyError: prompts, scorers or the model changed since the study.
        RunError: too few settings could be judged.
    """
    began = time.perf_counter()
    inputs = find_inputs(plan.spec)
    check_inputs(plan.study.path, fingerprints(inputs.task, inputs.source))
    second = second_gold(plan.request.gold, inputs.task, plan.study)
    design = make_design(plan, inputs)
    folder = plan.study.path / FOLDER
    runs = find_runs(folder, design)
    _say_plan(plan, design, runs)
    if plan.request.dry_run:
        if plan.request.as_json:
            result.write(encode(_plan_facts(plan, design, runs)) + "\n")
        return ExitCode.DONE
    end = RepeatEnd(None, {})
    new = len(runs.missing)
    if runs.missing:
        end = _train(plan, inputs, design, runs, stop)
        if end.reason is not None:
            say(f"{end.reason}: nothing was shown yet; the same command goes on from here")
            return signals.EXIT_CODES.get(end.reason, ExitCode.DONE)
        runs = find_runs(folder, design)
    test = inputs.task.splits.test
    prompts = [test[i] for i in spread_evenly(len(test), design.num_prompts)]
    shown = Shown(plan, design, runs.judged, end.failed, prompts, len(test), second)
    return shown.conclude(result, new, began)


def make_design(plan: Plan, inputs: Inputs) -> Design:
    """Settle on prompts.

    Raises:
        SpecError: the task has no test prompts.
    """
    test = inputs.task.splits.test
    refuse_hopeless(plan.arms, len(plan.seeds), len(test))
    return Design(
        arms=plan.arms,
        seeds=plan.seeds,
        num_prompts=min(len(test), MOST_PROMPTS),
        samples=plan.study.spec.evaluate.samples,
        digest=inputs.task.digests["test"],
    )


def _say_plan(plan: Plan, design: Design, runs: Runs) -> None:
    settings, seeds = len(design.trained), len(design.seeds)
    say(
        f"{settings} settings and the untrained start x {seeds} fresh seeds, each judged on {design.num_prompts} "
        f"test prompts x {design.samples} completions"
    )
    for arm in design.arms:
        stop = f", stop at step {arm.stop}" if arm.stop else ""
        say(f"  {words.arm_name(arm, plan.study.spec.kl_unit)}{stop}")
    there = len(runs.judged)
    if there:
        say(
            f"{there} of {_runs(there + len(runs.missing))} {'is' if there == 1 else 'are'} there and used again"
        )
    seconds = _seconds(plan, design, runs)
    if runs.missing:
        about = (
            "time unknown"
            if seconds is None
            else f"about {duration(seconds)}, by the study's own trials"
        )
        say(f"{_runs(len(runs.missing))} to do: {about}")
    say(looks_words(plan.study.path))
    expected, ended = (
        plan.study.spec.budget.trials,
        sum(t.outcome is not None for t in plan.study.trials),
    )
    if ended < expected:
        say(f"note: the study is not complete: {ended} of {expected} trials have ended")


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _seconds(plan: Plan, design: Design, runs: Runs) -> float | None:
    steps = sum(run.stop for run in runs.missing)
    return seconds_needed(plan.study, design, steps, len(runs.missing))


def _plan_facts(plan: Plan, design: Design, runs: Runs) -> dict[str, object]:
    return {
        "study": plan.study.spec.name,
        "settings": [
            {
                "name": words.arm_name(arm, plan.study.spec.kl_unit),
                "trial": arm.number,
                "role": arm.role,
                "stop": arm.stop,
            }
            for arm in design.arms
        ],
        "seeds": list(design.seeds),
        "test_prompts": design.num_prompts,
        "samples": design.samples,
        "completions": design.completions,
        "runs": len(runs.judged) + len(runs.missing),
        "runs_missing": len(runs.missing),
        "seconds": _seconds(plan, design, runs),
    }


def _train(
    plan: Plan, inputs: Inputs, design: Design, runs: Runs, stop: signals.StopRequest
) -> RepeatEnd:
    """Load the base and do the missing runs."""
    study = plan.study
    budget = study.spec.budget.model_copy(update={"trials": len(runs.missing)})
    judged = study.spec.evaluate.model_copy(update={"prompts": design.num_prompts})
    spec = study.spec.model_copy(update={"budget": budget, "evaluate": judged})
    say("loading the model and getting the proxy ready ...")
    ground = load_ground(spec, inputs, study.path, judged_on="test")
    scale = reference_scale(ground, spec, study.path)
    if (reason := stop()) is not None:
        return RepeatEnd(reason, {})
    site = Site(replace(plan.spec, spec=spec), ground, scale, study.path, should_stop=stop)
    progress = _Progress(len(runs.missing), sum(run.stop + 1 for run in runs.missing))
    with placed_bank(site, is_kept=False) as (bank, _):
        where = Where(study.path / FOLDER, spec, scale.sigma)
        return repeat(bank, runs.missing, where, progress, stop)


class _Progress:
    """Says now and then how far it is; what was measured on test is not said before the ledger has it."""

    def __init__(self, runs: int, work: int) -> None:
        self._runs, self._work = runs, work
        self._done, self._did = 0, 0
        self._began = self._said = time.monotonic()

    def __call__(self, run: Run, metrics: EvalMetrics) -> None:
        del metrics
        self._done += 1
        self._did += run.stop + 1
        now = time.monotonic()
        if now - self._said < _SAY_EVERY_S and self._done < self._runs:
            return
        self._said = now
        left = (now - self._began) * (self._work - self._did) / self._did
        say(f"judged {self._done} of {_runs(self._runs)}; about {duration(left)} left")
