"""The folder of an experiment in; what was asked and which runs have ended out, and refusals of what is none.

``arms.json`` says what was asked and in which units, ``runs/00000`` and so on are like a trial's folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kltune.errors import SpecError, StudyError
from kltune.metrics.jsonl import read_json, write_json
from kltune.metrics.record import RewardScale
from kltune.metrics.rows import CONFIG
from kltune.spec.load import from_resolved, resolved
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.study.place import LOCK, holds_study, is_foreign
from kltune.study.same_spec import differences
from kltune.study.same_spec import kept as kept_spec
from kltune.trial.disk import writing
from kltune.trial.inside import refuse_outside
from kltune.trial.outcome import StopReason
from kltune.trial.record import TrialRecord, read_trial
from kltune.trial.words import KL_UNIT, beta_unit_words

FILE: Final = "arms.json"
"""What was asked, in the folder."""
RUNS: Final = "runs"
ORIGIN: Final = "arm:"
"""Before an arm's name, where its run's origin is recorded."""
RECORDED: Final = (StopReason.DONE, StopReason.DIVERGED)
"""Endings of a run that is not run again."""

_UNUSED: Final = (
    *("name", "search", "baselines", "allow_biased", "objective", "guards", "pruning", "budget"),
    *("sampler", "tracking", "storage"),
)
"""Sections of a spec that no run of an arm looks at."""
_UNWRITTEN: Final = ("budget", "tracking", "storage")
"""Those that may change from call to call; an address may hold a password."""
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Kept:
    """What earlier calls left in arms.json."""

    scale: RewardScale
    """Arms were converted with it."""
    arms: Mapping[str, Mapping[str, Any]]
    """In the spec's units, without a seed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What this call adds to arms.json."""

    spec: StudySpec
    arms: Mapping[str, TrialSpec]
    """In the spec's units."""
    seeds: tuple[int, ...]
    scale: RewardScale
    inputs: Mapping[str, str]
    """Fingerprints of prompts, scorers and model."""
    env: Mapping[str, object]


def check_folder(folder: Path) -> None:
    """Refuse a path at which no runs may be recorded.

    Raises:
        StudyError: it is a file, a study, or holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder}: is a file; the runs need a folder")
    if not folder.is_dir() or (folder / FILE).is_file():
        return
    inside = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")}
    # A first call that was ended early leaves no more than what a judge had said by then.
    inside -= {LOCK, "artifacts"}
    if holds_study(folder) or (inside and not is_foreign(folder)):
        raise StudyError(f"{folder}: holds a study of kltune; the runs need a folder of their own")
    if inside:
        shown = ", ".join(sorted(inside)[:_SHOWN])
        raise StudyError(
            f"{folder}: is not empty and holds no runs of arms ({FILE} is absent; {shown}): choose another folder"
        )


def read_kept(folder: Path, spec: StudySpec, inputs: Mapping[str, str]) -> Kept | None:
    """What the runs of the folder were begun with; none where there are none.

    Raises:
        StudyError: they are of another spec or of other inputs, named; or it can't be read.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    facts = read_json(path)
    try:
        changed = [*_spec_changes(facts["spec"], spec), *_input_changes(facts["inputs"], inputs)]
        kept = Kept(RewardScale(**facts["scale"]), facts["arms"])
    except (KeyError, TypeError, AttributeError) as error:
        raise StudyError(f"{path}: is not what kltune wrote ({error!r})") from error
    if changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise StudyError(
            f"{folder}: holds runs of another spec, which can't be mixed with these "
            f"({'; '.join(changed[:_SHOWN])}{more}): choose another folder"
        )
    return kept


def refuse_other_arms(folder: Path, kept: Kept | None, arms: Mapping[str, TrialSpec]) -> None:
    """See to it that a name means the same setting in every call.

    Raises:
        StudyError: one was another setting before.
    """
    for name, setting in arms.items():
        before = None if kept is None else kept.arms.get(name)
        if before is None:
            continue
        was = TrialSpec.model_validate({**before, "seed": setting.seed})
        if was != setting:
            old, new = (one.model_dump(mode="json") for one in (was, setting))
            told = "; ".join(
                f"{key} was {old[key]!r} and is {new[key]!r}" for key in old if old[key] != new[key]
            )
            raise StudyError(
                f"{folder}: arm {name!r} was another setting in an earlier call ({told}): give it another name"
            )


def write_asked(folder: Path, asked: Asked) -> None:
    """Write arms.json: with what earlier calls asked, where there were any."""
    path = folder / FILE
    before = read_json(path) if path.is_file() else {}
    spec = asked.spec
    arms = {n: s.model_dump(mode="json", exclude={"seed"}) for n, s in asked.arms.items()}
    facts = {
        "spec": {k: v for k, v in resolved(spec).items() if k not in _UNWRITTEN},
        "arms": {**before.get("arms", {}), **arms},
        "seeds": sorted({*before.get("seeds", ()), *asked.seeds}),
        "scale": asdict(asked.scale),
        "inputs": dict(asked.inputs),
        "env": dict(asked.env),
        "units": units(spec, asked.arms.values()),
        "wall_s": before.get("wall_s", 0.0),
    }
    with writing(path):
        write_json(path, facts)


def units(spec: StudySpec, settings: Iterable[TrialSpec]) -> dict[str, str]:
    """What the numbers of arms.json are in."""
    penalties = [setting.penalty for setting in settings]
    return {
        "beta": beta_unit_words(spec.beta_unit, spec.trainer.credit, *penalties),
        "target_kl": KL_UNIT[spec.kl_unit],
        "horizon": "sequences",
        "scale": "raw proxy reward under the reference; sigma: within a prompt; mean_tokens: tokens/completion",
        "wall_s": "s, of all calls together",
    }


class Clock:
    """Keeps the seconds of this call in arms.json, on top of those of earlier ones."""

    def __init__(self, folder: Path, began: float) -> None:
        """``began``: on the monotonic clock; the file is there."""
        self._path, self._began = folder / FILE, began
        self._before = float(read_json(self._path)["wall_s"])

    def note(self) -> None:
        """Write down how long it has taken by now."""
        seconds = self._before + time.monotonic() - self._began
        with writing(self._path):
            write_json(self._path, {**read_json(self._path), "wall_s": round(seconds, 1)})


def read_runs(folder: Path) -> list[TrialRecord]:
    """All runs of a folder, ended or not."""
    return list(_each_run(folder))


def _each_run(folder: Path) -> Iterator[TrialRecord]:
    for path in sorted(folder.glob(f"{RUNS}/*/{CONFIG}")):
        refuse_outside(folder, path)
        yield read_trial(path.parent)


def is_recorded(record: TrialRecord) -> bool:
    """Whether it ran to its end, or to where it was no longer finite."""
    return record.outcome is not None and record.outcome.verdict.reason in RECORDED


def _spec_changes(before: Mapping[str, Any], spec: StudySpec) -> list[str]:
    """What of the spec is different, in sentences; of what the runs are made of."""
    now = resolved(spec)
    try:
        old = from_resolved({**before, **{part: now[part] for part in _UNUSED}})
    except SpecError:  # the parts of the two don't go together
        parts = sorted((before.keys() | now.keys()) - set(_UNUSED))
        return [part for part in parts if before.get(part) != now.get(part)]
    return differences(kept_spec(old), kept_spec(spec))


def _input_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = sorted(before.keys() | now.keys())
    return [f"{name} changed" for name in names if before.get(name) != now.get(name)]
