"""Study folders in, the studies as they are compared out; refused where their golds don't mean the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kltune.errors import SpecError
from kltune.metrics.jsonl import read_json
from kltune.report.compare import prompt_scores
from kltune.report.confirm_blocks import find_confirmation, is_of
from kltune.report.ranking import Ranking, rank
from kltune.report.recommend import Answer, Recommendation, recommend
from kltune.report.rows import StudyRows, TrialRow, read_study
from kltune.spec.study import StudySpec
from kltune.spec.task import BuiltinTask
from kltune.statistics.contrast import SeedNoise

INPUTS = "inputs.json"
SELECT = "prompts (select)"
_SURROUNDINGS = ("kltune", "git", "git_commit", "device", "cpus", "packages")
"""What else of a run bears on its numbers, in env.json."""


@dataclass(frozen=True, slots=True)
class Side:
    """One study of a comparison."""

    label: str
    study: StudyRows
    answer: Answer
    ranking: Ranking
    inputs: Mapping[str, str]
    """Fingerprints of prompts, scorers and model; empty where an older kltune noted none."""
    confirmed: tuple[float, float, float] | None
    """Gold of the recommended setting on fresh seeds and test prompts with its 95 % interval."""

    @property
    def best(self) -> TrialRow | None:
        """The recommended trial."""
        return self.answer.best if isinstance(self.answer, Recommendation) else None

    @property
    def seed_noise(self) -> SeedNoise | None:
        """What a fresh seed adds, where the study measured it."""
        repeats = self.ranking.repeats
        if repeats is None:
            return None
        return SeedNoise(repeats.floor.seed.variance, repeats.floor.seed_df)

    def scores(self, row: TrialRow) -> NDArray[np.float64] | None:
        """What each select prompt adds to the trial's value; their mean is about the value."""
        found = prompt_scores(row, self.study.spec.objective, self.study.spec.kl_unit)
        return None if found is None or len(found) < 2 else found


def read_sides(studies: Sequence[Path]) -> tuple[Side, ...]:
    """Read the studies and refuse what can't be compared.

    Raises:
        StudyError: a folder that is no study.
        SpecError: fewer than two, one twice, or golds of different meaning; all reasons in one message.
    """
    if len(studies) < 2:
        raise SpecError(f"STUDY: two studies or more are needed (got {len(studies)})")
    places = [path.resolve() for path in studies]
    twice = [str(p) for p, place in zip(studies, places, strict=True) if places.count(place) > 1]
    if twice:
        raise SpecError(f"STUDY: {', '.join(twice)}: the same folder, given more than once")
    labels = labels_of(studies)
    sides = tuple(_side(label, path) for label, path in zip(labels, studies, strict=True))
    check_comparable(sides)
    return sides


def labels_of(studies: Sequence[Path]) -> list[str]:
    """The folders' names, with as many of the folders above as it takes to tell them apart."""
    places = [path.resolve() for path in studies]
    longest = max(len(place.parts) for place in places)
    for depth in range(1, longest + 1):
        labels = ["/".join(place.parts[-depth:]) for place in places]
        if len(set(labels)) == len(labels):
            return labels
    return [str(place) for place in places]


def check_comparable(sides: Sequence[Side]) -> None:
    """Refuse studies whose gold does not mean the same.

    Raises:
        SpecError: every reason, with both values.
    """
    first = sides[0]
    problems = [text for other in sides[1:] for text in _problems(first, other)]
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise SpecError(f"these studies can't be compared:\n{lines}")


def spec_rows(sides: Sequence[Side]) -> list[tuple[str, ...]]:
    """Every field of the specs, and every input, in which the studies differ: name, then one text a study."""
    flats = [_described(side) for side in sides]
    keys = dict.fromkeys(key for flat in flats for key in flat)
    rows = [(key, *(flat.get(key, "–") for flat in flats)) for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def is_same_prompts(one: Side, other: Side) -> bool | None:
    """Whether both were judged on the same prompts in the same order; None: not on record."""
    a, b = one.inputs.get(SELECT), other.inputs.get(SELECT)
    if a is None or b is None:
        return None
    # Which prompts of a split are used depends on nothing but how many (spread evenly over it).
    return a == b and one.study.spec.evaluate.prompts == other.study.spec.evaluate.prompts


def _side(label: str, path: Path) -> Side:
    study = read_study(path)
    answer = recommend(study)
    inputs = read_json(path / INPUTS)["inputs"] if (path / INPUTS).is_file() else {}
    ranking = answer.ranking if isinstance(answer, Recommendation) else rank(study)
    return Side(label, study, answer, ranking, inputs, _confirmed(study, answer))


def _confirmed(study: StudyRows, answer: Answer) -> tuple[float, float, float] | None:
    result, _ = find_confirmation(study.path)
    if result is None or not is_of(result, answer):
        return None
    place = next((p for p in result.main.places if p.arm == 0), None)
    return None if place is None else (place.gold, place.low, place.high)


def _problems(one: Side, other: Side) -> list[str]:
    """Why two studies can't be compared."""
    a, b = one.study.spec, other.study.spec
    found: list[str] = []
    for name, x, y in (
        ("task", _task_name(a), _task_name(b)),
        ("objective.metric", a.objective.metric, b.objective.metric),
    ):
        if x != y:
            found.append(
                f"{name}: {x} in {one.label}, {y} in {other.label}: their golds don't mean the same"
            )
    golds = one.inputs.get("gold"), other.inputs.get("gold")
    if not found and None not in golds and golds[0] != golds[1]:
        found.append(
            f"task.gold: the code of the judgement differs between {one.label} and {other.label} "
            "(inputs.json), so their golds don't mean the same"
        )
    return found


def _task_name(spec: StudySpec) -> str:
    """What says what gold means: the built-in task, or the user's gold function."""
    if isinstance(spec.task, BuiltinTask):
        return f"built-in {spec.task.builtin}"
    return f"gold {spec.task.gold}"


def _described(side: Side) -> dict[str, str]:
    """All of a spec that can bear on the result, and the inputs, as text."""
    whole = side.study.spec.model_dump(mode="json", by_alias=True)
    kept = {key: value for key, value in whole.items() if key not in ("name", "tracking")}
    flat = dict(_flat(kept))
    flat |= {f"input: {name}": digest[:12] for name, digest in side.inputs.items()}
    surroundings = {key: side.study.environment.get(key) for key in _SURROUNDINGS}
    return flat | dict(_flat(surroundings, "run by: "))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            rows += _flat(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", _text(value)))
    return rows


def _text(value: object) -> str:
    if value is None or value in ({}, []):
        return "–"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in cast("list[object]", value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
