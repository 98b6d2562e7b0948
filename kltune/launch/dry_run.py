"""A checked spec in, the plan and its cost out: no study folder is made, no trial is started.

Minutes and memory are measured: the base is loaded, the number of workers is chosen as a sweep
would, and a few steps of a scratch trial run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import psutil
from rich.console import Console

from kltune.errors import ExitCode
from kltune.launch.assemble import (
    Inputs,
    find_inputs,
    load_ground,
    reference_scale,
    task_with_rewards,
)
from kltune.launch.calibrate import Site, placed_bank
from kltune.launch.disk import disk_need, refuse_full_disk
from kltune.launch.judges import judge_notes, most_calls, without_asking
from kltune.launch.placement import Placement
from kltune.launch.stopwatch import step_seconds
from kltune.metrics.record import RewardScale
from kltune.screen.plan import Plan, dry_run_table
from kltune.spec.doubts import find_doubts
from kltune.spec.load import LoadedSpec
from kltune.spec.study import StudySpec
from kltune.spec.task import LearnedProxySpec
from kltune.spec.trial import TrialSpec
from kltune.study.sampler import plan_search, planned_trials
from kltune.tasks.protocol import Sample

SHOWN = 8
"""Settings of the plan that are listed."""


@dataclass(frozen=True, slots=True)
class _StandIn:
    """Scores for a timing run in place of a proxy that has yet to be learned."""

    name: str = "stand-in"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [float(sum(sample.token_ids) % 97) for sample in samples]


def dry_run(spec: LoadedSpec, study_path: Path, inputs: Inputs, result: TextIO | None) -> ExitCode:
    """Print the plan: as JSON to ``result``, or as a table."""
    plan = make_plan(spec, study_path, inputs)
    if result is not None:
        facts = {"schema": 1, **asdict(plan), "first_settings": _as_json(plan.first_settings)}
        result.write(json.dumps(facts, allow_nan=False) + "\n")
    else:
        Console().print(dry_run_table(plan))
    return ExitCode.DONE


def make_plan(loaded: LoadedSpec, study_path: Path, inputs: Inputs) -> Plan:
    """Load, time a step and an evaluation, and count; guards and pruning only make it less."""
    spec = loaded.spec
    if most_calls(spec, 1, 1):
        task_with_rewards(inputs, "cpu", None)  # what can't be made shows here; nobody is asked
        loaded = without_asking(loaded)
        inputs = find_inputs(loaded)
    stand_in = _StandIn() if isinstance(inputs.task.proxy, LearnedProxySpec) else None
    ground = load_ground(loaded.spec, inputs, study_path, stand_in)
    need = disk_need(spec, ground.loaded)
    refuse_full_disk(study_path, need)
    must_learn = stand_in is not None
    scale = None if must_learn else reference_scale(ground, spec, study_path)
    # Where sigma_R is not known yet, 1 takes as long.
    unit = RewardScale(sigma=1.0, std=1.0, mean=0.0, num_groups=1, mean_tokens=1.0)
    placement, step_s, evaluation_s = _time(Site(loaded, ground, unit, study_path, stand_in))
    search, trials, steps = plan_search(spec), spec.budget.trials, spec.trainer.steps
    evaluations = len(set(range(0, steps, spec.evaluate.every)) | {steps})
    prompts = min(spec.evaluate.prompts, len(ground.data.select))
    judged = evaluations * spec.evaluate.samples * prompts
    splits = inputs.task.splits
    notes = [*find_doubts(spec), *splits.doubts, *splits.notes]
    if must_learn:
        notes.append(
            "the proxy is learned first; that time is not counted, and recipes wait for it"
        )
    proxied = trials * (steps * spec.trainer.rows + judged)
    calls = most_calls(spec, proxied, trials * judged)
    notes += judge_notes(spec, calls)
    counts = {
        "fixed": search.fixed - search.noise,
        "noise": search.noise,
        "sobol": search.sobol,
        search.sampler: search.guided,
    }
    return Plan(
        name=spec.name,
        trials_by_origin={origin: count for origin, count in counts.items() if count},
        ended_before=0,
        first_settings=_first_settings(spec, scale),
        slots=placement.slots,
        steps=steps,
        seconds=trials * (steps * step_s + evaluations * evaluation_s),
        memory_gib=placement.workers * psutil.Process().memory_info().rss / 2**30,
        reward_calls=proxied,
        gold_calls=trials * judged * (1 + len(ground.data.golds)),
        kl_unit=spec.kl_unit,
        beta_unit=spec.beta_unit,
        credit=spec.trainer.credit,
        judge_calls=sum(calls.values()),
        notes=tuple(notes),
        placement=placement.describe(),
        disk_bytes=need.study,
        disk=need.words(),
    )


def _time(site: Site) -> tuple[Placement, float, float]:
    """(where trials would run, seconds per trial-step there, per evaluation of a trial)."""
    with placed_bank(site, is_kept=False) as (bank, calibration):
        step_s = calibration.placed_step_s or step_seconds(bank, site.scratch())
        slots = bank.free_slots()
        for slot in slots:
            bank.admit(slot, slot, site.scratch(), None)
        start = time.perf_counter()
        bank.evaluate(slots)
        evaluation_s = (time.perf_counter() - start) / len(slots)
    return calibration.placement, step_s, evaluation_s


def _first_settings(
    spec: StudySpec, scale: RewardScale | None
) -> tuple[tuple[str, TrialSpec], ...]:
    # Recipes wait for sigma_R; without it only the searched points are known.
    known = spec if scale is not None else spec.model_copy(update={"baselines": ()})
    return tuple((p.origin, p.setting) for p in planned_trials(known, scale))[:SHOWN]


def _as_json(settings: Sequence[tuple[str, TrialSpec]]) -> list[dict[str, object]]:
    return [
        {"origin": origin, "setting": setting.model_dump(mode="json", exclude_none=True)}
        for origin, setting in settings
    ]
