"""Studies in; out: a refusal where they can't be compared, else the settings that all of them judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kltune.errors import SpecError
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.statistics.drift import Interval

MAY_DIFFER: Final = (
    "name",
    "model.base",
    "model.gguf_file",
    "model.dtype",
    "model.trust_remote_code",
    "trainer.learning_rate",
    "trainer.device",
    "trainer.precision",
    "trainer.micro_batch",
    "evaluate.keep",
    "guards.wall",
    "pruning",
    "sampler",
    "budget",
    "tracking",
)
"""Fields of the spec, sections included, in which studies of the same question may differ."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting of one study."""

    origin: str
    setting: TrialSpec
    value: float | None
    """Gold; none where it was not judged (pruned, failed, running)."""
    scores: tuple[float, ...]
    """What each select prompt adds to the value; their mean is the value. Empty where not kept."""
    kl_by_step: Mapping[int, float]
    """Exact KL at every evaluation after the start, nats per sequence."""
    peak_kl: float | None
    """KL at the gold peak, nats per sequence; none where gold had not turned by the end."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One study, ready to be compared."""

    study: str
    parameters: int
    spec: StudySpec
    sigma_r: float | None
    trials: tuple[Tried, ...]
    law_peak: Interval
    """KL at which gold peaks by the over-optimisation law, nats per sequence; no value: it can't say."""

    @property
    def judged(self) -> tuple[Tried, ...]:
        """Trials with a value."""
        return tuple(t for t in self.trials if t.value is not None and math.isfinite(t.value))


def check_comparable(subjects: Sequence[Subject]) -> None:
    """Refuse studies that ask different questions, or that don't differ in size.

    Raises:
        SpecError: all reasons in one message, each with the field and both values.
    """
    if len(subjects) < 2:
        raise SpecError(
            f"STUDY: at least two studies are needed, of other model sizes (got {len(subjects)})"
        )
    problems: list[str] = []
    first = subjects[0]
    for other in subjects[1:]:
        problems += spec_differences(first, other)
    for at, one in enumerate(subjects):
        for other in subjects[at + 1 :]:
            if _model(one.spec) == _model(other.spec):
                problems.append(
                    f"model.base: {one.study} and {other.study} have the same model "
                    f"({one.spec.model.base}); give studies of other sizes"
                )
            elif one.parameters == other.parameters:
                problems.append(
                    f"model.base: {one.spec.model.base} ({one.study}) and {other.spec.model.base} "
                    f"({other.study}) have the same {one.parameters:,} parameters; sizes must differ"
                )
    if problems:
        raise SpecError(
            "these studies can't be compared:\n" + "\n".join(f"  {p}" for p in problems)
        )


def spec_differences(one: Subject, other: Subject) -> list[str]:
    """Fields that must be the same and are not."""
    a, b = (_flat(s.spec.model_dump(mode="json")) for s in (one, other))
    differing = [key for key in {**a, **b} if a.get(key) != b.get(key) and not _may_differ(key)]
    return [
        f"{key}: {a.get(key)} in {one.study}, {b.get(key)} in {other.study}" for key in differing
    ]


def match_trials(subjects: Sequence[Subject]) -> tuple[list[tuple[Tried, ...]], int]:
    """The settings that every study judged, one trial of each study; and how many others there are.

    Known recipes and the beta = 0 arm are matched by name (a recipe is converted with each
    study's own proxy spread), all others by their parameters.
    """
    by_key: list[dict[object, Tried]] = []
    everything: dict[object, None] = {}
    for subject in subjects:
        is_searched = subject.spec.search.learning_rate is not None
        found: dict[object, Tried] = {}
        for trial in subject.trials:
            key = _key(trial, is_rate_searched=is_searched)
            everything.setdefault(key)
            if trial in subject.judged:
                found.setdefault(key, trial)
        by_key.append(found)
    shared = [key for key in everything if all(key in found for found in by_key)]
    rows = [tuple(found[key] for found in by_key) for key in shared]
    return rows, len(everything) - len(shared)


def _key(trial: Tried, *, is_rate_searched: bool) -> object:
    if trial.origin == "zero" or trial.origin.startswith("baseline"):
        return trial.origin
    s = trial.setting
    numbers = (s.beta, s.target_kl, s.horizon, s.learning_rate if is_rate_searched else None)
    return (s.penalty, s.controller, *(None if x is None else f"{x:.9g}" for x in numbers))


def _model(spec: StudySpec) -> tuple[str, str | None]:
    return spec.model.base, spec.model.gguf_file


def _may_differ(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in MAY_DIFFER)


def _flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in section.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{key}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            flat[f"{prefix}{key}"] = value
    return flat
