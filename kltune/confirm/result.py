"""What fresh seeds and test prompts said, as values; and the same as one strict JSON object and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

from kltune.confirm.design import Role
from kltune.errors import StudyError
from kltune.metrics.jsonl import read_json
from kltune.statistics.confirmation import Verdict

SCHEMA: Final = 1
FILE: Final = "confirm.json"
FOLDER: Final = "confirm"
"""Below the study's folder."""


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """One setting of the design, and what does not depend on which gold judges."""

    number: int | None
    role: Role
    origin: str
    name: str
    """For people, e.g. ``trial 22 (k1-reward 0.0731)``."""
    setting: Mapping[str, Any]
    """A TrialSpec; its seed is that of the study."""
    stop: int
    select_value: float | None
    select_gold: float | None
    kl_token: float
    """Exact KL on test at the stop, mean over seeds, nats per token."""
    kl_seq: float
    """The same in nats per sequence."""
    kl_token_by_seed: tuple[float, ...]
    over_limit: int
    """Seeds in which the KL at the stop is above the objective's limit."""
    proxy: float
    """On test, mean over seeds."""
    diverged: int
    """Seeds that diverged before the stop: judged at the weights before."""


@dataclass(frozen=True, slots=True)
class Place:
    """One setting under one gold."""

    arm: int
    """Index among the result's arms."""
    gold: float
    low: float
    high: float
    """95 % interval over new seeds and prompts, for this setting alone."""
    seed_sd: float
    by_seed: tuple[float, ...]
    shrunk: float | None
    """The mean drawn towards that of all trained settings; none for the start."""


@dataclass(frozen=True, slots=True)
class Against:
    """The recommended setting minus another one, in gold."""

    arm: int
    role: Role
    difference: float
    low: float
    high: float
    """Interval over new seeds and prompts; those of all trained settings hold at once (95 %)."""
    p: float
    """Adjusted likewise."""
    is_told_apart: bool
    is_pooled: bool
    seeds_above: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one gold says."""

    gold: str
    """The scorer's name."""
    names: tuple[str, ...]
    """Of the arms."""
    places: tuple[Place, ...]
    against: tuple[Against, ...]
    """Every arm but the recommended one."""
    verdict: Verdict
    winner: int
    """Index of the arm to use."""
    least_detectable: float
    """True difference in gold that this design tells apart in 8 of 10 repetitions."""
    shrunk_share: float
    shrunk_method: str

    @property
    def best_baseline(self) -> Against | None:
        """The best known recipe (or beta = 0) by gold on test; none where none ran."""
        rivals = [a for a in self.against if a.role == "baseline"]
        return min(rivals, key=lambda a: a.difference, default=None)


@dataclass(frozen=True, slots=True)
class Gate:
    """A requirement and whether it holds."""

    text: str
    holds: bool
    why: str


@dataclass(frozen=True, slots=True)
class ConfirmResult:
    """A confirmation."""

    study: str
    seeds: tuple[int, ...]
    """Those in which every setting was judged."""
    num_prompts: int
    samples: int
    digest: str
    arms: tuple[ArmFacts, ...]
    judgements: tuple[Judgement, ...]
    """The task's gold first; a second one that was given for this step after it."""
    kl_limit: float | None
    """Of the objective, in kl_unit."""
    kl_unit: str
    looks: int
    """Looks at the test prompts so far, this one included."""
    gates: tuple[Gate, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def main(self) -> Judgement:
        """What the task's own gold says."""
        return self.judgements[0]

    def as_json(self) -> dict[str, Any]:
        """Plain values, non-finite numbers as None; gold in the gold's units, KL in nats."""
        return {"schema": SCHEMA, **cast("dict[str, Any]", _plain(asdict(self)))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ConfirmResult:
        """Read back what :meth:`as_json` gave."""
        fields: dict[str, Any] = {name: _whole(data[name]) for name in cls.__slots__}
        fields["arms"] = tuple(ArmFacts(**_tuples(arm)) for arm in data["arms"])
        fields["judgements"] = tuple(_judgement(one) for one in data["judgements"])
        fields["gates"] = tuple(Gate(**gate) for gate in data["gates"])
        return cls(**fields)


def read_confirmed(study_path: Path) -> ConfirmResult | None:
    """The confirmation that a study has on record; none where there is none.

    Raises:
        StudyError: the file can't be read; it is named with the way out.
    """
    path = study_path / FOLDER / FILE
    way_out = "delete it, or run kltune confirm again, which writes it anew from the runs on record"
    if not path.is_file():
        return None
    try:
        found = ConfirmResult.from_json(read_json(path))
    except StudyError as error:  # names the file
        raise StudyError(f"{error}; {way_out}") from error
    except KeyError as error:
        why = f"it has no {error.args[0]!r}"
    except (TypeError, AttributeError, ValueError) as error:
        why = str(error)
    else:
        why = _oddity(found)
        if why is None:
            return found
    raise StudyError(f"{path}: no confirmation that this kltune can read ({why}); {way_out}")


def _oddity(found: ConfirmResult) -> str | None:
    """What keeps a result from being shown; none where nothing does."""
    if not (found.seeds and found.arms and found.judgements):
        return "it has no seeds, settings or judgements"
    count = len(found.arms)
    for judged in found.judgements:
        arms = [*(place.arm for place in judged.places), *(one.arm for one in judged.against)]
        is_whole = len(judged.places) == len(judged.names) == count and judged.winner in range(
            count
        )
        if not is_whole or any(arm not in range(count) for arm in arms):
            return f"its settings and the judgement by {judged.gold} don't fit together"
        numbers = [n for p in judged.places for n in (p.gold, p.low, p.high, *p.by_seed)]
        numbers += [n for a in judged.against for n in (a.difference, a.low, a.high)]
        if not all(_is_number(n) for n in (*numbers, judged.least_detectable)):
            return f"the judgement by {judged.gold} holds something else where a number belongs"
    return None


def _is_number(value: object) -> bool:
    """Whether a file may hold it for a number: a finite one, or None for one that isn't."""
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


def _judgement(data: Mapping[str, Any]) -> Judgement:
    fields = _tuples(data)
    fields["places"] = tuple(Place(**_tuples(place)) for place in data["places"])
    fields["against"] = tuple(Against(**one) for one in data["against"])
    return Judgement(**fields)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _whole(value) for name, value in data.items()}


def _whole(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in cast("dict[object, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in cast("list[Any]", value)]
    return value
