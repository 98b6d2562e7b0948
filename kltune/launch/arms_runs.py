"""A sound experiment in; its missing runs trained and recorded out. The heavy half: importing this loads torch.

Runs of one seed share prompts and random numbers. Order: seed by seed, so that an interruption leaves whole seeds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kltune.errors import RunError
from kltune.launch import signals
from kltune.launch.arms import Arm, Experiment, written_arm
from kltune.launch.arms_record import (
    ORIGIN,
    Asked,
    Clock,
    check_folder,
    is_recorded,
    read_kept,
    read_runs,
    refuse_other_arms,
    write_asked,
)
from kltune.launch.assemble import Ground, Inputs, find_inputs, load_ground, reference_scale
from kltune.launch.calibrate import Site, placed_bank
from kltune.launch.inputs import fingerprints
from kltune.launch.judges import keep_judges
from kltune.launch.proxy import keep_proxy
from kltune.launch.saying import say
from kltune.launch.signals import StopRequest
from kltune.metrics.env import environment
from kltune.metrics.record import EvalMetrics, RewardScale
from kltune.spec.recipes import RECIPES
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.study.lock import lock_study
from kltune.study.repeat import RepeatEnd, Run, Where, repeat
from kltune.study.space import baseline_setting
from kltune.trial.words import duration

_SAY_EVERY_S = 20.0


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What runs are trained with."""

    ground: Ground
    scale: RewardScale
    settings: Mapping[str, TrialSpec]


def run_missing(experiment: Experiment, stop: StopRequest) -> str | None:
    """Do the runs that are missing; the reason where it was interrupted.

    Nothing is loaded where none is. Nothing but the lock is put into the folder before model, prompts and
    proxy have shown that they work.

    Raises:
        SpecError: prompts, scorers or a model that can't be used; nothing was started.
        StudyError: the folder holds something else, or another process works in it.
        RunError: a run could not be trained.
    """
    began = time.monotonic()
    inputs = find_inputs(experiment.spec)
    prints = fingerprints(inputs.task, inputs.source)
    spec, folder = experiment.spec.spec, experiment.folder
    with lock_study(folder):
        check_folder(folder)  # again: another one may just have left
        kept = read_kept(folder, spec, prints)
        if kept is not None:
            settings = settings_of(experiment.arms, spec, kept.scale)
            refuse_other_arms(folder, kept, settings)
            if not missing_runs(experiment, settings):
                say(f"{folder}: all runs are there")
                return None
        loaded = _load(experiment, inputs, None if kept is None else kept.scale)
        if (reason := stop()) is not None:
            say(f"{reason}: no run was started")
            return reason
        env = environment(loaded.ground.loaded.device_facts())
        write_asked(
            folder, Asked(spec, loaded.settings, experiment.seeds, loaded.scale, prints, env)
        )
        keep_proxy(inputs.task, loaded.ground.data.proxy, folder)
        keep_judges(loaded.ground.data, folder)
        clock = Clock(folder, began)
        try:
            end = _train(experiment, loaded, clock, stop)
        finally:
            clock.note()
    return _concluded(end, folder)


def settings_of(
    arms: Mapping[str, Arm], spec: StudySpec, scale: RewardScale
) -> dict[str, TrialSpec]:
    """Every arm in the spec's units, on the spec's seed and, where it names none, at the trainer's learning rate.

    Raises:
        RunError: a recipe can't be converted with ``scale``.
    """
    same = {"seed": spec.seed, "learning_rate": spec.trainer.learning_rate}
    return {
        name: baseline_setting(RECIPES[arm], spec, scale).model_copy(update=same)
        if isinstance(arm, str)
        else written_arm(arm, spec)
        for name, arm in arms.items()
    }


def missing_runs(experiment: Experiment, settings: Mapping[str, TrialSpec]) -> list[Run]:
    """Runs that have not ended yet."""
    records = read_runs(experiment.folder)
    by_key = {(r.setting, r.origin): r for r in records}
    number = max((r.number for r in records), default=-1) + 1
    steps = experiment.spec.spec.trainer.steps
    found: list[Run] = []
    for seed in experiment.seeds:
        for name, setting in settings.items():
            seeded, origin = setting.model_copy(update={"seed": seed}), f"{ORIGIN}{name}"
            record = by_key.get((seeded, origin))
            if record is None:
                found.append(Run(number, seeded, steps, origin, along=True))
                number += 1
            elif not is_recorded(record):
                again = record.attempt + 1
                found.append(Run(record.number, seeded, steps, origin, attempt=again, along=True))
    return found


def _load(experiment: Experiment, inputs: Inputs, scale: RewardScale | None) -> _Loaded:
    say("loading the model and getting the proxy ready ...")
    spec = experiment.spec.spec
    ground = load_ground(spec, inputs, experiment.folder)
    scale = scale or reference_scale(ground, spec, None)
    return _Loaded(ground, scale, settings_of(experiment.arms, spec, scale))


def _train(experiment: Experiment, loaded: _Loaded, clock: Clock, stop: StopRequest) -> RepeatEnd:
    """Put a bank on the base and do the missing runs."""
    folder, spec = experiment.folder, experiment.spec.spec
    runs = missing_runs(experiment, loaded.settings)
    arms, seeds = len(loaded.settings), len(experiment.seeds)
    size = f"{_count(arms, 'arm')} x {_count(seeds, 'seed')}"
    say(f"{folder}: {len(runs)} of {_count(arms * seeds, 'run')} to do ({size})")
    budget = spec.budget.model_copy(update={"trials": len(runs)})
    placed = replace(experiment.spec, spec=spec.model_copy(update={"budget": budget}))
    site = Site(placed, loaded.ground, loaded.scale, folder, should_stop=stop)
    progress = _Progress(len(runs), clock)
    with placed_bank(site, is_kept=False) as (bank, _):
        where = Where(folder, placed.spec, loaded.scale.sigma)
        return repeat(bank, runs, where, progress, stop)


def _concluded(end: RepeatEnd, folder: Path) -> str | None:
    if end.reason in signals.EXIT_CODES:
        say(f"{folder}: {end.reason}; the same call goes on from there")
        return end.reason
    if end.failed:
        number, why = next(iter(end.failed.items()))
        raise RunError(
            f"{folder}: {_count(len(end.failed), 'run')} could not be trained; run {number}: {why} (the others are there; the "
            "same call tries again)"
        )
    say(f"{folder}: all runs are there")
    return None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _Progress:
    """Says now and then how far it is, and keeps the time that it took."""

    def __init__(self, runs: int, clock: Clock) -> None:
        self._runs, self._done, self._clock = runs, 0, clock
        self._began = self._said = time.monotonic()

    def __call__(self, run: Run, metrics: EvalMetrics) -> None:
        del run, metrics
        self._done += 1
        self._clock.note()
        now = time.monotonic()
        if now - self._said < _SAY_EVERY_S and self._done < self._runs:
            return
        self._said = now
        left = (now - self._began) * (self._runs - self._done) / self._done
        say(f"{self._done} of {_count(self._runs, 'run')}; about {duration(left)} left")
