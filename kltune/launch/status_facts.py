"""A study folder in, where it stands out: read from the record's small files, without locking or writing anything.

Of a finished trial only `config.json` and `events.jsonl` are read, of a running one the last row of each
file as well; so a study of 1,000 trials takes no longer than a blink.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kltune.errors import KltuneError, StudyError
from kltune.metrics.jsonl import read_json, read_rows
from kltune.metrics.rows import CONFIG, EVALS, EVENTS, STEPS, Row, last_ending, standing_warnings
from kltune.spec.load import from_resolved
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.study.holder import Holder, find_holder
from kltune.trial.outcome import TrialState
from kltune.trial.record import Warned
from kltune.trial.words import is_noise, setting_short

TAIL: Final = 2**18
"""Bytes at the end of a file in which its last row is looked for."""


@dataclass(frozen=True, slots=True)
class TrialStand:
    """One trial as it stands."""

    number: int
    origin: str
    setting: str
    """In a few words."""
    state: TrialState
    step: int
    """Steps done."""
    worked: float
    """Steps of this session: those of attempts that began in it."""
    last: float | None
    """Unix seconds of its latest row."""
    ending: Mapping[str, Any] | None
    row: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Last row of metrics.jsonl; empty unless it is open."""
    evaluation: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Last row of evals.jsonl of an open trial; of an ended one, that at its best step."""
    warnings: tuple[Warned, ...] = ()
    began: float | None = None
    """Unix seconds at which its first attempt of this session began."""

    @property
    def value(self) -> float | None:
        """What the search was told; none where nothing was, or the trial is not feasible."""
        if self.ending is None or self.ending.get("feasible") is not True:
            return None
        value = self.ending.get("value")
        return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, slots=True)
class Standing:
    """A study as it stands."""

    path: Path
    holder: Holder
    spec: StudySpec | None
    """None: the sweep has begun and not got as far as to write it."""
    trials: tuple[TrialStand, ...]
    broken: tuple[str, ...]
    """Trials that can't be read, and why."""
    now: float
    """Unix seconds at which all this was read."""
    disk_bytes: int
    files: frozenset[str]
    """Names in the study's folder."""
    command: tuple[str, ...] = ()
    """Of the last sweep, as it was typed."""

    @property
    def is_running(self) -> bool:
        """Whether a kltune is surely at work in it."""
        return self.holder.state == "held"

    @property
    def counts(self) -> Counter[TrialState]:
        """Trials by state; one without an end is running, also where its process is gone."""
        return Counter(trial.state for trial in self.trials)

    @property
    def open(self) -> tuple[TrialStand, ...]:
        """Trials without an end."""
        return tuple(t for t in self.trials if t.state is TrialState.RUNNING)

    @property
    def num_counted(self) -> int:
        """Trials that count towards the budget and are over."""
        return self.counts[TrialState.COMPLETE] + self.counts[TrialState.PRUNED]

    @property
    def is_finished(self) -> bool:
        """Whether the same command again would find nothing to do, but for trials that failed."""
        resumable = self.counts[TrialState.RUNNING] + self.counts[TrialState.INTERRUPTED]
        over = self.num_counted + self.counts[TrialState.FAILED]
        return self.spec is not None and not resumable and over >= self.spec.budget.trials

    @property
    def last(self) -> float | None:
        """Unix seconds of the latest row of any trial."""
        return max((t.last for t in self.trials if t.last is not None), default=None)

    @property
    def best(self) -> TrialStand | None:
        """The complete feasible trial of the highest value, as the search itself sees it."""
        found = [
            (value, trial)
            for trial in self.trials
            if trial.state is TrialState.COMPLETE
            and not is_noise(trial.origin)
            and (value := trial.value) is not None
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None


def read_standing(study_path: Path, clock: Callable[[], float] = time.time) -> Standing:
    """Read where a study stands, whatever happens in it meanwhile.

    Raises:
        StudyError: no study is there.
    """
    if not study_path.is_dir():
        raise StudyError(f"{study_path}: no such study folder")
    holder = find_holder(study_path)
    spec = _spec(study_path, holder)
    since = holder.since if holder.state == "held" else None
    trials: list[TrialStand] = []
    broken: list[str] = []
    for config in sorted(study_path.glob(f"trials/*/{CONFIG}")):
        try:
            trials.append(_trial(config.parent, spec, since))
        except (KltuneError, OSError) as error:
            broken.append(str(error))
        except (KeyError, TypeError, ValueError) as error:
            broken.append(f"{config.parent}: not a trial's record ({error!r})")
    return Standing(
        path=study_path,
        holder=holder,
        spec=spec,
        trials=tuple(sorted(trials, key=lambda trial: trial.number)),
        broken=tuple(broken),
        now=clock(),
        disk_bytes=size_of(study_path),
        files=frozenset(entry.name for entry in study_path.iterdir()),
        command=_command(study_path),
    )


def size_of(folder: Path) -> int:
    """Bytes of all files below; links are not followed, what vanishes meanwhile does not count."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size  # noqa: PTH118 -- 10 x a Path here
            except OSError:
                continue
    return total


def _spec(study_path: Path, holder: Holder) -> StudySpec | None:
    resolved = study_path / "resolved.json"
    if resolved.is_file():
        return from_resolved(read_json(resolved))
    if holder.state == "held":
        return None
    raise StudyError(f"{study_path}: not a study folder (no resolved.json in it)")


def _trial(folder: Path, spec: StudySpec | None, since: float | None) -> TrialStand:
    config = read_json(folder / CONFIG)
    try:
        number, attempt = int(config["trial"]), int(config["attempt"])
        setting, origin = TrialSpec.model_validate(config["setting"]), str(config["origin"])
    except (KeyError, TypeError, ValueError) as error:
        raise StudyError(f"{folder / CONFIG}: not a trial's config ({error})") from error
    events = read_rows(folder / EVENTS)
    ending = last_ending(events, attempt)
    row = last_row(folder / STEPS) if ending is None else {}
    evaluation = last_row(folder / EVALS) if ending is None else _at_best(folder, ending)
    step = int(row.get("step", 0)) if ending is None else int(ending["steps_run"])
    times = [r["time"] for r in (*events[-1:], row, evaluation if ending is None else {}) if r]
    return TrialStand(
        number=number,
        origin=origin,
        setting="" if spec is None else setting_short(setting, spec.kl_unit),
        state=TrialState.RUNNING if ending is None else TrialState(ending["state"]),
        step=step,
        worked=_worked(events, step, since),
        last=max(times, default=None),
        ending=ending,
        row=row,
        evaluation=evaluation,
        warnings=tuple(_warned(event) for event in standing_warnings(events)),
        began=_began(events, since),
    )


def _warned(event: Mapping[str, Any]) -> Warned:
    return Warned(
        guard=str(event["guard"]),
        detail=str(event["detail"]),
        first_step=int(event["first_step"]),
        step=int(event["step"]),
    )


def _at_best(folder: Path, ending: Mapping[str, Any]) -> Row:
    if ending.get("value") is None or ending.get("best_step") is None:
        return {}
    rows = [r for r in read_rows(folder / EVALS) if r.get("step") == ending["best_step"]]
    return max(rows, key=lambda row: row["attempt"], default={})


def _worked(events: Sequence[Mapping[str, Any]], step: int, since: float | None) -> float:
    """Steps since ``since``, from the events: each attempt from where it began to where it ended."""
    if since is None:
        return 0.0
    total, start = 0, None
    for event in events:
        kind = event.get("event")
        if kind in ("started", "resumed"):
            start = int(event["step"]) if event["time"] >= since - 1 else None
        elif kind == "ended" and start is not None:
            total += int(event["steps_run"]) - start
            start = None
    return float(total if start is None else total + max(0, step - start))


def _began(events: Sequence[Mapping[str, Any]], since: float | None) -> float | None:
    begun = ("started", "resumed")
    times = [float(event["time"]) for event in events if event.get("event") in begun]
    return min((t for t in times if since is not None and t >= since - 1), default=None)


def last_row(path: Path) -> Row:
    """The last whole row of a file that may be growing; empty where there is none within `TAIL`."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            found: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "step" in found:
            return found  # pyright: ignore[reportUnknownVariableType]
    return {}


def _command(study_path: Path) -> tuple[str, ...]:
    try:
        words = read_json(study_path / "env.json").get("command")
    except (OSError, StudyError):
        return ()
    return tuple(map(str, words)) if isinstance(words, list) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
