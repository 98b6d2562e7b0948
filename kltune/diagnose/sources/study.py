"""A kltune study or trial folder in, its trials out as rows: steps and evaluations together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kltune.diagnose.facts import ENDED_BY
from kltune.diagnose.sources.raw import RawRun, numbers
from kltune.errors import StudyError
from kltune.metrics.jsonl import read_json
from kltune.metrics.rows import CONFIG, STEPS, Row
from kltune.trial.record import TrialRecord, each_trial, read_trial

_RESOLVED: Final = "resolved.json"
_HEAD: Final = frozenset({"schema", "trial", "attempt", "step", "time"})
_TRAINER_FACTS: Final = ("algorithm", "group_size", "max_new_tokens", "temperature", "steps")


def is_study(path: Path) -> bool:
    """Whether ``path`` is a study's folder."""
    return (path / "trials").is_dir()


def is_trial(path: Path) -> bool:
    """Whether ``path`` is a trial's folder."""
    return (path / CONFIG).is_file() and (path / STEPS).is_file()


def read_study(path: Path, wanted: str | None) -> list[RawRun]:
    """Read all trials of a study that have a step, by number, or the one whose number is ``wanted``.

    Raises `StudyError` where there is none.
    """
    records = list(each_trial(path))
    if wanted is not None:
        chosen = [record for record in records if _is_wanted(record, wanted)]
        if not chosen:
            there = ", ".join(str(record.number) for record in records) or "none"
            raise StudyError(f"{path}: no trial {wanted!r}; the trials are: {there}")
        records = chosen
    runs = [_raw(record, _study_facts(path)) for record in sorted(records, key=lambda r: r.number)]
    found = [run for run in runs if run.rows]
    if not found:
        raise StudyError(f"{path}: no trial of this study has a step or an evaluation on record")
    return found


def read_trial_folder(path: Path) -> RawRun:
    """Read one trial. Raises `StudyError` where it has no step and no evaluation."""
    run = _raw(read_trial(path), _study_facts(path.parent.parent))
    if not run.rows:
        raise StudyError(f"{path}: the trial has no step and no evaluation on record")
    return run


def _is_wanted(record: TrialRecord, wanted: str) -> bool:
    return wanted == record.folder.name or (wanted.isdigit() and int(wanted) == record.number)


def _raw(record: TrialRecord, study: Mapping[str, object]) -> RawRun:
    by_step: dict[int, dict[str, float]] = {}
    for row in (*record.steps, *record.evals):
        by_step.setdefault(int(row["step"]), {}).update(numbers(_metrics(row)))
    config = read_json(record.folder / CONFIG)
    facts = {
        **study,
        **{key: value for key, value in config["setting"].items() if value is not None},
        "kl_unit": config.get("kl_unit"),
        "beta_unit": config.get("beta_unit"),
    }
    outcome = record.outcome
    if outcome is not None:
        facts[ENDED_BY] = outcome.verdict.reason.value
    run = RawRun(
        str(record.folder), "kltune trial", tuple(sorted(by_step.items())), "kltune", facts
    )
    if outcome is None:
        return run
    return replace(run, notes=(f"how the trial ended: {outcome.verdict.detail}",))


def _metrics(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in _HEAD}


def _study_facts(path: Path) -> dict[str, object]:
    """Facts of the study that the trial belongs to; none where its spec is not beside it."""
    if not (path / _RESOLVED).is_file():
        return {}
    spec = read_json(path / _RESOLVED)
    trainer = spec.get("trainer", {})
    facts: dict[str, object] = {key: trainer[key] for key in _TRAINER_FACTS if key in trainer}
    limit = spec.get("objective", {}).get("kl_limit")
    return facts | ({"kl_limit": limit} if limit is not None else {})
