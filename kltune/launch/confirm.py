"""``kltune confirm``: a study in, what fresh seeds and untouched prompts say about its recommendation out.

Flags, files and the study are checked before anything heavy loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from kltune.confirm.design import Arm, fresh_seeds, refuse_hopeless
from kltune.confirm.require import Requirement, check_requirements, parse_requirement
from kltune.confirm.result import FILE, FOLDER, read_confirmed
from kltune.errors import ExitCode, RunError, SpecError, StudyError
from kltune.launch import signals
from kltune.launch.confirm_design import choose_arms
from kltune.launch.saying import say
from kltune.launch.status_facts import read_standing
from kltune.launch.status_next import next_command
from kltune.launch.stdout import reserved_stdout
from kltune.launch.threads import keep_memory, share_cores
from kltune.report.build import build_report
from kltune.report.recommend import NoAnswer, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.screen.ending import near
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec
from kltune.study.lock import lock_study


@dataclass(frozen=True, slots=True)
class ConfirmRequest:
    """The flags of ``kltune confirm``."""

    study_path: Path
    top: int = 3
    """Settings of the search, the recommended one included; baselines come on top."""
    seeds: int = 10
    gold: str | None = None
    """``FILE.py:function``: a second judgement of the same completions."""
    require: tuple[str, ...] = ()
    dry_run: bool = False
    as_json: bool = False

    def requirements(self) -> tuple[Requirement, ...]:
        """The demands, read.

        Raises:
            SpecError: one that can't be read.
        """
        return tuple(parse_requirement(text) for text in self.require)


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that is sound: what is to be confirmed, before the task is looked at."""

    request: ConfirmRequest
    study: StudyRows
    spec: LoadedSpec
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    requirements: tuple[Requirement, ...]


Work = Callable[[Plan, signals.StopRequest, TextIO], ExitCode]


def run_confirm(request: ConfirmRequest, work: Work | None = None) -> ExitCode:
    """Confirm the recommendation of a study; ``work`` stands in for the heavy half.

    Raises:
        SpecError: a flag that can't be used, or a task without test prompts; nothing was started.
        StudyError: no study, one that runs, or one without a recommendation.
        EnvironmentMissingError: this machine lacks what the spec needs.
        RunError: too few settings could be judged.
    """
    requirements = request.requirements()
    _check_gold(request.gold)
    study = read_study(request.study_path)
    with lock_study(request.study_path):  # a search that runs would change what is recommended
        plan = _plan(request, study, requirements)
        check_paths(plan.spec)
        share_cores()
        keep_memory()
        stop = signals.StopRequest(None, lambda reason: say(f"{reason}: saving what runs ..."))
        try:
            with stop.listening(), reserved_stdout(is_reserved=request.as_json) as result:
                if work is None:
                    # torch takes seconds to import: not before the flags are sound.
                    from kltune.launch.confirm_runs import run_plan

                    work = run_plan
                before = _stamp(request.study_path)
                code = work(plan, stop, result)
        except KeyboardInterrupt:
            say("stopped at once; runs that ended are kept, and the same command goes on")
            return ExitCode.INTERRUPTED
    if _stamp(request.study_path) != before:
        _tell_report(request.study_path)
    return code


def _stamp(study_path: Path) -> int | None:
    """When the confirmation on record was written, in nanoseconds."""
    try:
        return (study_path / FOLDER / FILE).stat().st_mtime_ns
    except OSError:
        return None


def _tell_report(study_path: Path) -> None:
    """Write the report anew, which says what was confirmed from now on; then the step that comes next.

    The study is not held any more: a report says of one that is held that it runs.
    """
    try:
        page = build_report(study_path).html
    except (RunError, StudyError) as error:  # the confirmation stands
        say(f"note: the report does not know of this confirmation yet: {error}")
    else:
        say(f"wrote the report anew, with the confirmation: {near(page)}")
    say(f"Next  {next_command(read_standing(study_path))}")


def _plan(request: ConfirmRequest, study: StudyRows, requirements: tuple[Requirement, ...]) -> Plan:
    found = recommend(study)
    if isinstance(found, NoAnswer):
        advice = " ".join(found.advice)
        raise StudyError(f"{study.path}: there is nothing to confirm. {found.reason} {advice}")
    if request.top < 1:
        raise SpecError(f"--top: must be 1 or more (got {request.top})")
    arms = choose_arms(study, found, request.top)
    refuse_hopeless(arms, request.seeds, 2)
    _refuse_fewer(request, arms[0])
    check_requirements(requirements, {arm.role for arm in arms})
    used = {row.setting.seed for row in study.trials} | {study.spec.seed}
    seeds = fresh_seeds(study.spec.seed, request.seeds, used)
    text_path = study.path / "spec.yaml"
    text = text_path.read_text(encoding="utf-8") if text_path.is_file() else ""
    return Plan(request, study, LoadedSpec(study.spec, text, text_path), arms, seeds, requirements)


def _refuse_fewer(request: ConfirmRequest, recommended: Arm) -> None:
    """Refuse fewer seeds than the confirmation on record has, where it is of the same setting.

    Raises:
        SpecError: how many are allowed.
    """
    path = request.study_path / FOLDER / FILE
    try:
        before = read_confirmed(request.study_path)
    except StudyError:
        say(f"note: {path} can't be read; the new result replaces it")
        return
    if before is None or before.arms[0].number != recommended.number:
        return
    have = len(before.seeds)
    if request.seeds < have:
        raise SpecError(
            f"--seeds: {request.seeds} would throw evidence away: the confirmation on record has {have} seeds ({path}); "
            f"allowed: {have} or more"
        )


def _check_gold(gold: str | None) -> None:
    """Refuse a second gold that is no function of a file that is there; its code is not run yet."""
    if gold is None:
        return
    source, _, function = gold.rpartition(":")
    if not source.endswith(".py") or not function.isidentifier():
        raise SpecError(f"--gold: must look like file.py:function (got {gold!r})")
    if not Path(source).is_file():
        raise SpecError(f"--gold: no such file: {source}")
