"""``kltune plan``: a request in, what it takes to see a gold difference out; at most a pilot of the reference is run.

Flags and files are checked before anything heavy loads. With a study at hand nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rich.console import Console

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.launch.threads import share_cores
from kltune.launch.writable import takes_files
from kltune.metrics.jsonl import encode, write_json
from kltune.plan.designs import Price, cheapest, purposes, round_differences, seen
from kltune.plan.noise import Measured, scenarios, unknowns
from kltune.plan.result import PlanResult
from kltune.plan.table import plan_table
from kltune.report.noise_rows import measure_noise
from kltune.report.reckon import account
from kltune.report.rows import StudyRows, read_study
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec, load_spec, resolve_path
from kltune.spec.study import StudySpec
from kltune.tasks.registry import load_task
from kltune.trial.words import number

DEFAULT_POWER = 0.8


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The flags of ``kltune plan``."""

    spec_path: Path
    difference: float | None = None
    """Gold; none: a table of several."""
    power: float = DEFAULT_POWER
    study_path: Path | None = None
    as_json: bool = False
    out: Path | None = None
    """A file for the JSON."""

    def check(self) -> None:
        """Refuse numbers that mean nothing.

        Raises:
            SpecError: the flag, what it was and what is allowed.
        """
        if self.difference is not None and not 0 < self.difference < float("inf"):
            raise SpecError(f"--difference: must be above 0, in gold (got {self.difference})")
        if not 0.05 < self.power < 1:
            raise SpecError(
                f"--power: must be a chance above 0.05 and below 1 (got {self.power}), as 0.8"
            )
        if self.out is not None:
            _check_writable(self.out)


@dataclass(frozen=True, slots=True)
class Known:
    """Noise and price, from a study or from a pilot."""

    noise: Measured
    price: Price
    notes: tuple[str, ...] = field(default=())


Pilot = Callable[[LoadedSpec], Known]


def run_plan(request: PlanRequest, pilot: Pilot | None = None) -> ExitCode:
    """Plan; ``pilot`` stands in for the one that samples the reference.

    Raises:
        SpecError: a spec, a flag or a path that can't be used; nothing was started.
        StudyError: ``--study`` is no study.
        RunError: the plan can't be written where it shall go.
    """
    request.check()
    loaded = load_spec(request.spec_path)
    check_paths(loaded)
    study = _study(request, loaded.spec)
    task = load_task(loaded.spec.task, lambda text: resolve_path(loaded, text))
    prompts = (len(task.splits.select), len(task.splits.test))
    with reserved_stdout(is_reserved=request.as_json) as result:
        known = None if study is None else of_study(study, loaded.spec)
        if known is None:
            if study is not None:
                say(f"{study.path}: no evaluation in it yet, so the reference is sampled")
            known = _piloted(loaded, pilot)
        plan = make_plan(loaded.spec, known, prompts, request.difference, request.power)
        _write(request, plan, result)
    return ExitCode.DONE


def _study(request: PlanRequest, spec: StudySpec) -> StudyRows | None:
    if request.study_path is not None:
        return read_study(request.study_path)
    usual = Path("studies") / spec.name
    return read_study(usual) if (usual / "resolved.json").is_file() else None


def _piloted(loaded: LoadedSpec, pilot: Pilot | None) -> Known:
    if pilot is None:
        share_cores()
        say("no study yet: sampling the reference (at most 30 s after loading) ...")
        # torch takes seconds to import: not before flags and files are sound.
        from kltune.launch.plan_pilot import sample_reference

        pilot = sample_reference
    return pilot(loaded)


def of_study(study: StudyRows, spec: StudySpec) -> Known | None:
    """What a study says of noise, and of the time of runs as ``spec`` has them; none before any evaluation."""
    noise = measure_noise(study)
    return None if noise is None else Known(noise, _price(study, spec))


def _price(study: StudyRows, spec: StudySpec) -> Price:
    time = account(study).time
    step_s, evaluation_s = time.steps.mean_s, time.evaluations.mean_s
    judged = study.spec.evaluate.prompts * study.spec.evaluate.samples
    if step_s is None or evaluation_s is None:
        return untimed(spec)
    pace = 1.0
    how = "one run after another"
    if time.wall_s is not None and time.is_whole and time.busy_s > 0:
        pace, how = time.wall_s / time.busy_s, "wall time at its pace"
    return Price(
        train=spec.trainer.steps * step_s * pace,
        judged=evaluation_s * pace / judged,
        evaluations=evaluations_of(spec),
        is_timed=True,
        words=(
            f"{number(step_s, 2)} s a step, {number(evaluation_s, 2)} s an evaluation of {judged} completions "
            f"in {study.path.name}; {how}"
        ),
    )


def untimed(spec: StudySpec) -> Price:
    """Runs counted in completions."""
    return Price(
        train=float(spec.trainer.steps * spec.trainer.rows),
        judged=1.0,
        evaluations=evaluations_of(spec),
        is_timed=False,
        words="not timed: cost is counted in completions that are sampled",
    )


def evaluations_of(spec: StudySpec) -> int:
    """Evaluations of one run, that of step 0 included."""
    steps = spec.trainer.steps
    return len(set(range(0, steps, spec.evaluate.every)) | {steps})


def make_plan(
    spec: StudySpec,
    known: Known,
    available: tuple[int, int],
    difference: float | None,
    wanted: float,
) -> PlanResult:
    """The plan; ``available``: prompts of the select and of the test split.

    Raises:
        SpecError: nothing is known of the noise of gold.
    """
    try:
        noises = scenarios(known.noise)
    except ValueError as error:
        raise SpecError(f"{spec.name}: {error}") from error
    trials = spec.budget.trials
    baselines = len(spec.baselines) + int(spec.search.beta.zero)
    prompts = min(spec.evaluate.prompts, available[0])
    asked = purposes(trials, baselines, available)
    now = seen(noises, prompts, spec.evaluate.samples, trials, wanted)
    around = sorted(one.difference for one in now)[len(now) // 2]
    differences = round_differences(around) if difference is None else (difference,)
    needs = tuple(
        cheapest(one, noise, purpose, known.price, wanted)
        for purpose in asked
        for one in differences
        if one > 0
        for noise in noises
    )
    return PlanResult(
        name=spec.name,
        source=known.noise.source,
        power=wanted,
        prompts=prompts,
        samples=spec.evaluate.samples,
        trials=trials,
        scenarios=noises,
        purposes=asked,
        price=known.price,
        seen=now,
        needs=needs,
        unknowns=(*unknowns(known.noise), *known.notes),
    )


def _check_writable(file: Path) -> None:
    """Refuse a file that can't be written, before anything is computed; nothing is made."""
    if file.is_dir():
        raise SpecError(f"--out: {file} is a folder; give a file, as plan.json")
    if not takes_files(file.absolute().parent):
        raise SpecError(f"--out: {file} can't be written; give a file in a folder that can")


def _write(request: PlanRequest, plan: PlanResult, result: TextIO) -> None:
    facts = plan.as_json()
    # Shown before it is written: a full disk must not cost the answer.
    if request.as_json:
        result.write(encode(facts) + "\n")
        result.flush()
    else:
        Console(file=result).print(plan_table(plan))
    if request.out is None:
        return
    verb = "replaced" if request.out.exists() else "wrote"
    try:
        request.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(request.out, facts)
    except OSError as error:
        raise RunError(
            f"{request.out}: the plan can't be written there: {error.strerror}"
        ) from error
    say(f"{verb} {request.out}")
