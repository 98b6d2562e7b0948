"""Rows of a record and rows of the same trial run again in; from where and by how much they part out. Pure.

Compared is every quantity that both rows hold, to the last bit; times and the words of the row's head are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from kltune.metrics.rows import Row

Kind = Literal["step", "evaluation"]

FLOOR = 1e-3
"""Differences are told as a share of the number, or of this where the number is smaller."""

ROUNDING = 1e-3
"""Above this share the first difference is no matter of rounding: float32 keeps 1e-7, and sums over a batch
whose terms cancel (a policy loss) some 1e-5 of their terms."""

_BY_PROMPT = ("gold_by_prompt", "proxy_by_prompt")


class Likeness(StrEnum):
    """How a replay compares with its record."""

    SAME = "same"
    """To the last bit, in everything that both hold."""
    ROUNDING = "rounding"
    """Parts somewhere, at first by rounding alone."""
    DIFFERENT = "different"
    """Parts by more than rounding at once."""
    NOTHING = "nothing"
    """No step and no evaluation was there to compare."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One quantity that is not the same."""

    name: str
    recorded: float | None
    """None where it was not finite."""
    replayed: float | None

    @property
    def share(self) -> float:
        """Difference over the larger of both numbers (at least `FLOOR`); infinite where one is not finite."""
        if self.recorded is None or self.replayed is None:
            return math.inf
        size = max(abs(self.recorded), abs(self.replayed), FLOOR)
        return abs(self.recorded - self.replayed) / size


@dataclass(frozen=True, slots=True)
class Compared:
    """One step, or one evaluation, of both."""

    kind: Kind
    step: int
    """Steps done."""
    num_same: int
    """Quantities that are the same to the last bit."""
    differences: tuple[Difference, ...]
    """The others, the largest share first."""

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def place(self) -> str:
        """For people: ``step 3`` or ``the evaluation after step 10``."""
        return (
            f"step {self.step}" if self.kind == "step" else f"the evaluation after step {self.step}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """A whole replay against its record."""

    compared: tuple[Compared, ...]
    """In the order in which they happened: a step, then its evaluation."""
    only_recorded: tuple[str, ...]
    """Quantities that the replay never measured."""
    only_replayed: tuple[str, ...]
    """Quantities that the record never holds: an older kltune did not measure them."""

    @property
    def first(self) -> Compared | None:
        """Where they part."""
        return next((one for one in self.compared if not one.is_same), None)

    @property
    def likeness(self) -> Likeness:
        """In one word."""
        if not self.compared:
            return Likeness.NOTHING
        if self.first is None:
            return Likeness.SAME
        is_small = self.first.differences[0].share <= ROUNDING
        return Likeness.ROUNDING if is_small else Likeness.DIFFERENT

    def count(self, kind: Kind) -> int:
        """Steps, or evaluations, that both hold."""
        return sum(one.kind == kind for one in self.compared)


def compare_row(kind: Kind, recorded: Row, replayed: Row) -> Compared:
    """Compare two rows of the same step."""
    differences: list[Difference] = []
    num_same = 0
    mine, theirs = _quantities(recorded), _quantities(replayed)
    for name in mine.keys() & theirs.keys():
        if mine[name] == theirs[name]:
            num_same += 1
        else:
            differences.append(Difference(name, mine[name], theirs[name]))
    differences.sort(key=lambda found: (-found.share, found.name))
    return Compared(kind, int(recorded["step"]), num_same, tuple(differences))


def compare_trials(
    recorded: tuple[Sequence[Row], Sequence[Row]], replayed: tuple[Sequence[Row], Sequence[Row]]
) -> Comparison:
    """Compare (steps, evaluations) of a record with those of its replay; only what both hold counts."""
    found: list[Compared] = []
    for kind, mine, theirs in zip(("step", "evaluation"), recorded, replayed, strict=True):
        by_step = {int(row["step"]): row for row in mine}
        found += [
            compare_row("step" if kind == "step" else "evaluation", by_step[step], row)
            for row in theirs
            if (step := int(row["step"])) in by_step
        ]
    found.sort(key=lambda one: (one.step, one.kind == "evaluation"))
    names = [_names(rows) for rows in (recorded, replayed)]
    return Comparison(
        tuple(found), tuple(sorted(names[0] - names[1])), tuple(sorted(names[1] - names[0]))
    )


def _names(files: tuple[Sequence[Row], Sequence[Row]]) -> set[str]:
    return {name.partition("[")[0] for rows in files for row in rows for name in _quantities(row)}


def _quantities(row: Mapping[str, Any]) -> dict[str, float | None]:
    """The row's numbers by name, per-prompt scores one by one; null (not finite) stays none."""
    found: dict[str, float | None] = {}
    for name, value in row.items():
        # A name without a slash is of the row's head, or TRL's for a metric that is there under ours.
        if "/" in name and not name.startswith("time/") and _is_number(value):
            found[name] = value
    for name in _BY_PROMPT:
        scores: Sequence[float | None] = row.get(name) or ()
        found |= {f"{name}[{i}]": score for i, score in enumerate(scores)}
    return found


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
