"""``kltune status``: a study or its spec in, where it stands out, as a table or as JSON."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from kltune.errors import ExitCode, StudyError
from kltune.launch.status_confirmed import find_confirmed
from kltune.launch.status_facts import Standing, TrialStand, read_standing
from kltune.launch.status_next import next_command, recommended_trial, report_age, state_word
from kltune.launch.status_pace import Pace, pace_of
from kltune.launch.status_table import not_started_table, status_table
from kltune.launch.status_words import members_json
from kltune.metrics.jsonl import encode
from kltune.spec.load import load_spec


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """The arguments of ``kltune status``."""

    target: Path
    as_json: bool = False


def run_status(request: StatusRequest) -> ExitCode:
    """Say where the study stands.

    Raises:
        StudyError: no study is there.
        SpecError: the spec can't be read, or the study's own.
    """
    target = request.target
    study_path = _study_of(target)
    if target.is_file() and not study_path.is_dir():
        steps = tuple(
            f"kltune {verb} {shlex.quote(str(target))}" for verb in ("check", "preview", "sweep")
        )
        facts = {"study": study_path, "state": "not started", "next": steps[0]}
        _show(request, facts, lambda: not_started_table(study_path, steps))
        return ExitCode.DONE
    standing = read_standing(study_path)
    pace = pace_of(standing)
    _show(request, status_json(standing, pace), lambda: status_table(standing, pace))
    return ExitCode.DONE


def status_json(standing: Standing, pace: Pace | None) -> dict[str, object]:
    """Everything that the table says, as data; times in seconds, sizes in bytes."""
    best, spec = standing.best, standing.spec
    chosen, confirmed = recommended_trial(standing), find_confirmed(standing.path)
    number = None if chosen is None else chosen.number
    return {
        "study": standing.path,
        "name": None if spec is None else spec.name,
        "state": state_word(standing),
        "process": standing.holder.pid if standing.is_running else None,
        "command": standing.holder.command or None,
        "members": members_json(standing.holder.crew),
        "budget_trials": None if spec is None else spec.budget.trials,
        "trials": {state.value: count for state, count in standing.counts.items()},
        "running": [_open(trial, standing.now) for trial in standing.open],
        "pace": None if pace is None else asdict(pace),
        "last_row_age_s": None if standing.last is None else max(0.0, standing.now - standing.last),
        "recommended": None if chosen is None else _best(chosen),
        "best": None if best is None else _best(best),
        "confirmed": None if confirmed is None else confirmed.as_json(number),
        "warnings": [
            {"trial": trial.number, **asdict(warned)}
            for trial in standing.trials
            for warned in trial.warnings
        ],
        "unreadable": list(standing.broken),
        "disk_bytes": standing.disk_bytes,
        "report": standing.path / "report.html" if "report.html" in standing.files else None,
        "report_is": report_age(standing) or None,
        "next": next_command(standing),
    }


def _study_of(target: Path) -> Path:
    """The study's folder: the target itself, that of a spec within a study, or where the spec's study goes."""
    if target.is_dir():
        return target
    if not target.is_file():
        raise StudyError(f"{target}: no such study folder and no such spec")
    if (target.absolute().parent / "resolved.json").is_file():
        return target.parent
    return Path("studies") / load_spec(target).spec.name


def _show(request: StatusRequest, facts: Mapping[str, object], table: Any) -> None:
    if request.as_json:
        sys.stdout.write(encode(facts) + "\n")
    else:
        Console(file=sys.stdout).print(table())


def _open(trial: TrialStand, now: float) -> dict[str, object]:
    return {
        "trial": trial.number,
        "origin": trial.origin,
        "setting": trial.setting,
        "step": trial.step,
        "kl_token": trial.row.get("kl/exact_token"),
        "kl_seq": trial.row.get("kl/exact_seq"),
        "gold": trial.evaluation.get("eval/gold"),
        "row_age_s": None if trial.last is None else max(0.0, now - trial.last),
    }


def _best(trial: TrialStand) -> dict[str, object]:
    names: Sequence[str] = ("gold", "gold_se", "kl_token", "kl_seq")
    return {
        "trial": trial.number,
        "origin": trial.origin,
        "setting": trial.setting,
        "value": trial.value,
        "step": trial.evaluation.get("step"),
        **{name: trial.evaluation.get(f"eval/{name}") for name in names},
    }
