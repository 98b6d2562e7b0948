"""Settings, seeds and a folder in; every setting trained to its end on every seed, and the record of each run out.

A designed experiment beside the search: nothing is proposed, pruned or guarded, so that all arms have the same
budget. What is wrong with it is told before torch loads; kltune.launch.arms_runs trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from pydantic import ValidationError

from kltune.errors import SpecError
from kltune.launch import signals
from kltune.launch.arms_record import check_folder
from kltune.launch.saying import say
from kltune.launch.threads import keep_memory, share_cores
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec
from kltune.spec.penalty import Penalty
from kltune.spec.problems import Problem, describe, message
from kltune.spec.recipes import RECIPES, unknown_words
from kltune.spec.study import StudySpec
from kltune.spec.trial import CONTROLLER_CLIP, ControllerKind, TrialSpec

Arm = str | Mapping[str, object]
"""A recipe's name, or the fields of a setting but its seed."""

_MOST_SEED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Experiment:
    """Arms x seeds of one spec, and the folder that they are recorded in."""

    spec: LoadedSpec
    arms: Mapping[str, Arm]
    """By name."""
    seeds: tuple[int, ...]
    folder: Path


def run_experiment(experiment: Experiment) -> str | None:
    """Do the runs that are missing; the reason where it was interrupted, and the same call goes on from there.

    Raises:
        SpecError: the spec, an arm or the seeds are wrong; nothing was started.
        StudyError: the folder holds something else, or another process works in it.
        EnvironmentMissingError: this machine lacks what the spec needs.
        RunError: a run could not be trained.
        KeyboardInterrupt: a second signal, while the running ones were saved.
    """
    refuse_wrong(experiment)
    check_paths(experiment.spec)
    check_folder(experiment.folder)
    share_cores()
    keep_memory()
    stop = signals.StopRequest(None, lambda reason: say(f"{reason}: saving the running ones ..."))
    with stop.listening():
        # torch and the rest take seconds to import: not before the request is sound.
        from kltune.launch.arms_runs import run_missing

        return run_missing(experiment, stop)


def refuse_wrong(experiment: Experiment) -> None:
    """See to it that every arm is a setting and every seed one; no file is looked at.

    Raises:
        SpecError: all that is wrong with them in one message.
    """
    problems = [
        *_arm_problems(experiment.arms, experiment.spec.spec),
        *_seed_problems(experiment.seeds),
    ]
    if problems:
        raise SpecError(message("experiment", problems))


def written_arm(arm: Mapping[str, object], spec: StudySpec) -> TrialSpec:
    """An arm that is written out as a setting, on the spec's seed.

    Raises:
        ValidationError: it is none.
    """
    given = {"learning_rate": spec.trainer.learning_rate, **arm, "seed": spec.seed}
    return TrialSpec.model_validate(given)


def _seed_problems(seeds: tuple[int, ...]) -> Iterator[Problem]:
    if not seeds:
        yield Problem("seeds", "at least one is needed")
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        yield Problem("seeds", f"each may be there once (got {', '.join(map(str, twice))} again)")
    wrong = [seed for seed in seeds if not 0 <= seed <= _MOST_SEED]
    if wrong:
        yield Problem("seeds", f"must be from 0 to 2^63 - 1 (got {wrong[0]})")


def _arm_problems(arms: object, spec: StudySpec) -> Iterator[Problem]:
    if not isinstance(arms, Mapping):
        kind = type(arms).__name__
        yield Problem("arms", f"must be a mapping of names to settings or recipes (got a {kind})")
        return
    if not arms:
        yield Problem("arms", "at least one is needed")
    for name, arm in cast("Mapping[object, object]", arms).items():
        if not isinstance(name, str) or not name.strip():
            yield Problem("arms", f"a name must be a text with something in it (got {name!r})")
            continue
        for found in _problems_of(arm, spec):
            field = f": {found.path}" if found.path else ""
            yield Problem(f"arms[{name!r}]{field}", found.text)


def _problems_of(arm: object, spec: StudySpec) -> Iterator[Problem]:
    if isinstance(arm, str):
        if arm in RECIPES:
            yield from _penalty_problems(RECIPES[arm].penalty, spec)
        else:
            yield Problem("", unknown_words(arm))
    elif isinstance(arm, Mapping):
        yield from _written_problems(cast("Mapping[str, object]", arm), spec)
    else:
        yield Problem("", f"must be a recipe's name or the fields of a setting (got {arm!r})")


def _written_problems(arm: Mapping[str, object], spec: StudySpec) -> Iterator[Problem]:
    if "seed" in arm:
        yield Problem("seed", "every arm runs on the same seeds: give them as `seeds`")
    try:
        setting = written_arm(arm, spec)
    except ValidationError as error:
        yield from describe(error.errors(include_url=False), TrialSpec)
        return
    yield from _penalty_problems(setting.penalty, spec)
    yield from _controller_problems(setting, spec)
    yield from _bound_problems(setting, spec)


def _penalty_problems(penalty: Penalty | None, spec: StudySpec) -> Iterator[Problem]:
    refusal = None if penalty is None else penalty.nature.refusal
    if refusal is not None and not spec.allow_biased:
        yield Problem("penalty", f"{refusal}; allow_biased: true admits it, to study it")


def _controller_problems(setting: TrialSpec, spec: StudySpec) -> Iterator[Problem]:
    """What its controller lacks, or does not look at."""
    kind, horizon = setting.controller, setting.horizon
    if kind.has_target and setting.target_kl is None and spec.control.calibrate is None:
        text = f"needed by controller {kind.value} (or measure it: control.calibrate in the spec)"
        yield Problem("target_kl", text)
    if setting.target_kl is not None and not kind.has_target:
        yield Problem("target_kl", f"has no effect with controller {kind.value}: remove it")
    if horizon is None:
        return
    shortest = CONTROLLER_CLIP * spec.trainer.rows
    if kind is not ControllerKind.PROPORTIONAL:
        yield Problem("horizon", f"has no effect with controller {kind.value}: remove it")
    elif horizon <= shortest:
        yield Problem(
            "horizon",
            f"must be above {shortest:g} sequences ({CONTROLLER_CLIP:g} x {spec.trainer.rows} completions per "
            f"step): below it, one step at KL 0 takes beta to 0 or under (got {horizon:g})",
        )


def _bound_problems(setting: TrialSpec, spec: StudySpec) -> Iterator[Problem]:
    """Where beta starts, its controller must be able to leave it."""
    low, high = spec.control.beta_min, spec.control.beta_max
    if not setting.controller.has_target:
        return
    if low is not None and setting.beta < low:
        yield Problem("beta", f"is below control.beta_min = {low:g} (got {setting.beta:g})")
    if high is not None and setting.beta > high:
        yield Problem("beta", f"is above control.beta_max = {high:g} (got {setting.beta:g})")
