"""A trial as it was recorded: a folder in, rows merged over attempts and the outcome out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, Final

from kltune.errors import StudyError
from kltune.metrics.jsonl import Damage, decode, read_json, read_rows
from kltune.metrics.record import TokenProfile
from kltune.metrics.rows import (
    CONFIG,
    EVALS,
    EVENTS,
    OUTLIERS,
    SAMPLES,
    STEPS,
    TOKENS,
    Row,
    last_ending,
    merge_attempts,
    standing_warnings,
)
from kltune.spec.trial import TrialSpec
from kltune.trial.inside import refuse_outside
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict


@dataclass(frozen=True, slots=True)
class Warned:
    """A guard that warned and let the trial go on."""

    guard: str
    """Its name, that of the `StopReason` it would end the trial with."""
    detail: str
    first_step: int
    """Where the symptom began."""
    step: int
    """Steps done when it was told."""


_SHOWN_ERRORS: Final = 3


@dataclass(frozen=True, slots=True)
class ScoreErrors:
    """What ``task.errors: {action: skip}`` passed over in a trial."""

    count: int
    """Completions of training steps."""
    steps: int
    """In how many steps."""
    examples: tuple[str, ...]
    """A few of them, of steps and evaluations: prompt, completion and error."""
    judged: int = 0
    """Completions of evaluations."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """Everything that the folder of a trial says."""

    number: int
    attempt: int
    """The latest attempt."""
    origin: str
    setting: TrialSpec
    sigma_r: float | None
    steps: list[Row]
    """Rows of metrics.jsonl, one a step, in step order."""
    evals: list[Row]
    """Rows of evals.jsonl, one an evaluation, in step order."""
    events: list[Row]
    """All events of all attempts, as they were written."""
    outcome: TrialOutcome | None
    """How the latest attempt ended; none while it runs, or where its process died."""
    folder: Path
    overtaken_steps: tuple[Row, ...] = ()
    """Steps of earlier attempts that are not in ``steps``: run, and thrown away."""
    overtaken_evals: tuple[Row, ...] = ()
    """The same of the evaluations."""
    damage: tuple[Damage, ...] = ()
    """Lines of its steps, evaluations and events that could not be read and are left out."""

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """What guards warned of, in step order, each guard once; without what an attempt said that was overtaken."""
        return tuple(
            Warned(
                guard=str(event["guard"]),
                detail=str(event["detail"]),
                first_step=int(event["first_step"]),
                step=int(event["step"]),
            )
            for event in standing_warnings(self.events)
        )

    @property
    def score_errors(self) -> ScoreErrors | None:
        """Completions that the proxy failed on and that count as unscored, over all attempts; none where there are none."""
        found = [event for event in self.events if event.get("event") == "score_errors"]
        if not found:
            return None
        examples = dict.fromkeys(str(text) for event in found for text in event["examples"])
        # Records of before evaluations told theirs don't say what an event is of: of a step.
        judged = [event for event in found if event.get("during") == "evaluation"]
        count = sum(int(event["count"]) for event in found)
        passed_over = sum(int(event["count"]) for event in judged)
        return ScoreErrors(
            count - passed_over,
            len(found) - len(judged),
            tuple(examples)[:_SHOWN_ERRORS],
            passed_over,
        )


def read_trial(folder: Path) -> TrialRecord:
    """Read one trial's folder.

    Of a step that several attempts ran, the latest attempt's row counts. What an earlier
    attempt did beyond the step from which a later one went on is left out: it belongs to
    weights that no longer exist. Raises `StudyError` where there is no readable config, or where a row
    says what this version does not know.
    """
    config_path = folder / CONFIG
    if not config_path.exists():
        raise StudyError(f"{folder}: not a trial's folder ({CONFIG} is absent)")
    config = read_json(config_path)
    try:
        setting = TrialSpec.model_validate(config["setting"])
        number, attempt = int(config["trial"]), int(config["attempt"])
        origin, sigma_r = str(config["origin"]), config["sigma_r"]
    except (KeyError, TypeError, ValueError) as error:
        raise StudyError(f"{config_path}: not a trial's config ({error})") from error
    damage: list[Damage] = []
    events = read_rows(folder / EVENTS, damage)
    all_steps, all_evals = (read_rows(folder / name, damage) for name in (STEPS, EVALS))
    try:
        steps, evals = merge_attempts(all_steps, events), merge_attempts(all_evals, events)
    except (KeyError, TypeError, ValueError) as error:
        raise StudyError(f"{folder}: a row is not one of a trial's record ({error!r})") from error
    return TrialRecord(
        number=number,
        attempt=attempt,
        origin=origin,
        setting=setting,
        sigma_r=sigma_r,
        steps=steps,
        evals=evals,
        events=events,
        outcome=_outcome(folder, number, attempt, events),
        folder=folder,
        overtaken_steps=_rest(all_steps, steps),
        overtaken_evals=_rest(all_evals, evals),
        damage=tuple(damage),
    )


def read_trials(study_path: Path) -> list[TrialRecord]:
    """Read every trial of a study, by number; a folder whose config was never written is no trial."""
    return sorted(each_trial(study_path), key=lambda record: record.number)


def each_trial(study_path: Path) -> Iterator[TrialRecord]:
    """Read the same trials one after another, in the order of their folders' names.

    A record of 80 steps takes some 400 kB; a caller that keeps none has only one in memory, however
    many trials there are.
    """
    for path in sorted(study_path.glob(f"trials/*/{CONFIG}")):
        refuse_outside(study_path, path)
        yield read_trial(path.parent)


def read_samples(folder: Path, step: int) -> list[Row]:
    """Read the samples kept at ``step`` by the latest attempt that evaluated it; possibly none."""
    return _latest_at(folder / SAMPLES, step)


def read_outliers(folder: Path, step: int) -> list[Row]:
    """Read the tokens with the largest KL at ``step``, largest first, of that same attempt; possibly none."""
    return _latest_at(folder / OUTLIERS, step)


def _latest_at(path: Path, step: int) -> list[Row]:
    rows = [row for row in read_rows(path) if row["step"] == step]
    latest = max((row["attempt"] for row in rows), default=0)
    return [row for row in rows if row["attempt"] == latest]


def read_profiles(folder: Path, events: Sequence[Mapping[str, Any]]) -> dict[int, TokenProfile]:
    """Where the KL of each step lay, by step; empty where that was not recorded.

    ``events`` are all events of the trial.
    """
    return {
        int(row["step"]): TokenProfile(
            edges=tuple(int(edge) for edge in row["edges"]),
            kl=tuple(_number(value) for value in row["kl_by_position"]),
            tokens=tuple(int(count) for count in row["tokens_by_position"]),
        )
        for row in merge_attempts(read_rows(folder / TOKENS), events)
    }


def _number(value: object) -> float:
    """Null (not finite) becomes NaN."""
    return float(value) if isinstance(value, int | float) else nan


def _rest(rows: Sequence[Row], kept: Sequence[Row]) -> tuple[Row, ...]:
    if len(rows) == len(kept):
        return ()
    ids = {id(row) for row in kept}
    return tuple(row for row in rows if id(row) not in ids)


def _outcome(
    folder: Path, number: int, attempt: int, events: Sequence[Mapping[str, Any]]
) -> TrialOutcome | None:
    last = last_ending(events, attempt)
    if last is None:
        return None
    try:
        return TrialOutcome(
            trial_number=number,
            attempt=int(last["attempt"]),
            verdict=Verdict(StopReason(last["reason"]), str(last["detail"])),
            steps_run=int(last["steps_run"]),
            value=last["value"],
            is_feasible=last["feasible"],
            constraint=last["constraint"],
            best_step=last["best_step"],
        )
    except (KeyError, TypeError, ValueError) as error:
        path = folder / EVENTS
        reason = last.get("reason")
        why = (
            f"the trial ended by {reason!r}, which this kltune does not know"
            if reason not in {known.value for known in StopReason}
            else f"not the end of a trial ({error!r})"
        )
        raise StudyError(
            f"{path}, line {_line_of(path, last)}: {why}; was it written by a newer kltune? "
            "That one can read it"
        ) from error


def _line_of(path: Path, row: Mapping[str, Any]) -> int:
    """Where a row that was read stands, from 1."""
    lines = path.read_bytes().split(b"\n")
    return next((n for n, line in enumerate(lines, 1) if decode(line) == row), 0)
