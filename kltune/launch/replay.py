"""``kltune replay``: a trial of a study in; the same trial run again, compared with its record, out.

The study is left alone but for a folder under ``replays/``. Flags and files are checked before anything
heavy loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch import signals
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.launch.threads import keep_memory, share_cores
from kltune.launch.writable import takes_files
from kltune.metrics.jsonl import read_json
from kltune.metrics.rows import CONFIG
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec, from_resolved
from kltune.trial.record import TrialRecord, read_trial

REPLAYS = "replays"
"""The folder in a study that holds them."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The flags of ``kltune replay``."""

    study_path: Path
    trial: int
    steps: int | None = None
    """None: as many as the record holds."""
    trace: int | None = None
    """Step that is taken apart; the first is 1."""
    out: Path | None = None
    """None: ``replays/`` of the study."""
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a sound request comes to."""

    request: ReplayRequest
    spec: LoadedSpec
    record: TrialRecord
    steps_recorded: int
    steps: int
    """To run."""

    @property
    def only_warns(self) -> bool:
        """Whether guards only warn: a length of one's own is not cut short."""
        return self.request.steps is not None


def run_replay(request: ReplayRequest) -> ExitCode:
    """Run the trial again and say whether it repeats its record.

    Raises:
        StudyError: no study, no such trial, or prompts, scorers or a model that changed since.
        SpecError: a flag or a path of the study's spec that can't be used.
        EnvironmentMissingError: this machine lacks what the study needs.
    """
    plan = plan_replay(request)
    check_paths(plan.spec)
    share_cores()
    keep_memory()
    stop = signals.StopRequest(None, lambda reason: say(f"{reason}: stopping after this step ..."))
    try:
        with stop.listening(), reserved_stdout(is_reserved=request.as_json) as result:
            # torch takes seconds to import: not before the request is sound.
            from kltune.launch.replay_run import run_plan

            return run_plan(plan, stop, result)
    except KeyboardInterrupt:
        say("stopped at once; the rows that were written are kept")
        return ExitCode.INTERRUPTED


def plan_replay(request: ReplayRequest) -> ReplayPlan:
    """Read the study's record and settle how far to run; nothing is made.

    Raises:
        StudyError: no study, or no such trial in it.
        SpecError: a flag that can't be used.
    """
    study = request.study_path
    resolved = study / "resolved.json"
    if not resolved.is_file():
        what = (
            "no such folder" if not study.exists() else "holds no study (resolved.json is absent)"
        )
        raise StudyError(f"{study}: {what}; give the folder of a study, as kltune sweep made it")
    spec = from_resolved(read_json(resolved))
    record = read_trial(_trial_folder(study, request.trial))
    recorded = max((int(row["step"]) for row in record.steps), default=0)
    steps = recorded if request.steps is None else request.steps
    if steps == 0:
        raise StudyError(
            f"{study}: trial {record.number} has no recorded step to repeat; --steps says how many to run"
        )
    if request.trace is not None and request.trace > steps:
        raise SpecError(
            f"--trace-step: {request.trace} is beyond the {steps} steps that are run; "
            f"at most {steps}, or more --steps"
        )
    _check_out(request)
    return ReplayPlan(request, LoadedSpec(spec, "", study / "spec.yaml"), record, recorded, steps)


def _trial_folder(study: Path, number: int) -> Path:
    folder = study / "trials" / f"{number:05d}"
    if (folder / CONFIG).is_file():
        return folder
    there = sorted(int(p.parent.name) for p in study.glob(f"trials/[0-9]*/{CONFIG}"))
    raise StudyError(
        f"{study}: has no trial {number}; it has: {', '.join(map(str, there)) or 'none yet'}"
    )


def _check_out(request: ReplayRequest) -> None:
    """Refuse a folder that can't take the results or must not."""
    if request.out is None:
        place = request.study_path / REPLAYS
        if not takes_files(place):
            raise SpecError(f"{place} can't be written to; --out names another folder")
        return
    out, study = request.out.resolve(), request.study_path.resolve()
    if out.is_relative_to(study) and not out.is_relative_to(study / REPLAYS):
        raise SpecError(
            f"--out: {request.out} lies in the study, which is left alone but for {REPLAYS}/; "
            "choose a folder there or elsewhere"
        )
    if not takes_files(request.out):
        raise SpecError(f"--out: {request.out} can't be written to; give a folder that can")
    if request.out.is_dir() and any(request.out.iterdir()):
        raise SpecError(f"--out: {request.out} is not empty; give a new folder")
