"""Rows of any log in, one mapping of names to numbers a step out, with what could not be read.

Nothing here knows what a name means (kltune.diagnose.names does).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from sys import intern
from types import MappingProxyType
from typing import Any, Final, cast

from kltune.diagnose.series import counted

Row = Mapping[str, float]

_SHOWN: Final = 40
"""Characters of a text that is no number."""
_DEEPEST: Final = 20
"""Levels of nested mappings whose numbers are read; no trainer logs deeper ones."""

_NO_FACTS: Final[Mapping[str, object]] = MappingProxyType({})
_WORDS: Final = {
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
}
STEP_NAMES: Final = (
    "step",
    "_step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "training_step",
    "training/global_step",
    "iteration",
    "iter",
    "update",
)
"""Names of the step, the surest first; compared without case."""


@dataclass(frozen=True, slots=True)
class RawRun:
    """One run as its source has it."""

    path: str
    kind: str
    """For people: ``TRL trainer_state.json``."""
    rows: tuple[tuple[int, Row], ...]
    """(step, values by name), ascending, each step once; NaN is a number that was logged and is none."""
    framework: str = ""
    """Where the source alone tells it; empty: the names have to."""
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    """Settings of the run by the names that its framework gives them, nested ones joined by ``/``."""
    notes: tuple[str, ...] = ()
    restart: str = ""
    """How many rows a restart logged again, for people; empty: none."""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """What was logged under a name and is no number, the first of each: where it was and what it was."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that were logged, sorted."""
        return tuple(sorted({name for _, row in self.rows for name in row}))


class Merger:
    """Collects rows in the order in which they were logged; of one name at one step the later value wins."""

    def __init__(self) -> None:
        self._by_step: dict[int, dict[str, float]] = {}
        self._seen: set[tuple[int, str]] = set()
        self._last = -1
        self._backwards: list[tuple[int, int]] = []
        self._repeated: set[int] = set()
        self._again: set[int] = set()
        self._complaints: Counter[tuple[str, str]] = Counter()
        self._examples: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add what was logged at ``step``."""
        held = self._by_step.setdefault(step, {})
        is_again = any(name in held for name in values)
        if step < self._last:
            self._backwards.append((self._last, step))
        elif is_again:
            self._repeated.add(step)
        if is_again and self._backwards:
            self._again.add(step)
        self._last = step
        held.update(values)

    def complain(self, noun: str, what: str, example: str) -> None:
        """Count something that could not be read: ``row``, ``without a step``; the first ``example`` is shown."""
        self._complaints[noun, what] += 1
        self._examples.setdefault(what, example)

    def text(self, name: str, where: str, found: object) -> None:
        """Remember that what was logged under ``name`` is no number; the first of each name is kept."""
        if name not in self._texts:
            shown = repr(found)
            self._texts[name] = f"{where}: {shown[:_SHOWN]}{'...' if len(shown) > _SHOWN else ''}"

    @property
    def texts(self) -> Mapping[str, str]:
        """What is no number, by name."""
        return self._texts

    @property
    def restart(self) -> str:
        """How many rows a restart logged again, for people; empty: none."""
        if not self._again:
            return ""
        last, step = self._backwards[0]
        was = "was" if len(self._again) == 1 else "were"
        return (
            f"{counted(len(self._again), 'step')} {was} logged again after a restart (from {last} back to {step}): only what "
            "was logged last is judged"
        )

    def run(
        self,
        path: str,
        kind: str,
        framework: str = "",
        facts: Mapping[str, object] = _NO_FACTS,
    ) -> RawRun:
        """All that was collected, as one run."""
        return RawRun(
            path=path,
            kind=kind,
            rows=self.rows(),
            framework=framework,
            facts=facts,
            notes=self.notes(),
            restart=self.restart,
            texts=self.texts,
        )

    @property
    def next_row(self) -> int:
        """Step of a row that has none: the number of the row, from 1."""
        return len(self._by_step) + 1

    def rows(self) -> tuple[tuple[int, Row], ...]:
        """The merged rows in ascending order of steps; steps at which nothing was logged are left out."""
        return tuple((step, row) for step, row in sorted(self._by_step.items()) if row)

    def notes(self) -> tuple[str, ...]:
        """What the reader has to say."""
        said = [
            f"{counted(count, noun)} {what}, e.g. {self._examples[what]}"
            for (noun, what), count in self._complaints.items()
        ]
        if self._backwards:
            last, step = self._backwards[0]
            times = len(self._backwards)
            more = f" ({counted(times, 'time')} in all)" if times > 1 else ""
            said.append(
                f"the steps go back from {last} to {step}{more}: they were put in order, and the later row of a step counts"
            )
        if self._repeated:
            was = "was" if len(self._repeated) == 1 else "were"
            said.append(
                f"{counted(len(self._repeated), 'step')} {was} logged more than once (first {min(self._repeated)}): "
                "the later value of a name counts"
            )
        return tuple(said)


def number(value: object) -> float | None:
    """Read a number as logs write it: also as a string, as ``NaN`` or ``-Infinity``; none for anything else.

    A truth value is a number (0 or 1). A decimal comma is not read: it can't be told from a
    separator of thousands.
    """
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if not isinstance(value, str):
        return None
    text = value.strip()
    word = _WORDS.get(text.lower())
    if word is not None:
        return word
    if "_" in text:  # Python takes 1_000; no log means that.
        return None
    try:
        return float(text)
    except ValueError:
        return None


def step_number(value: object) -> int | None:
    """Read a step: a whole number of at least 0, also as 3.0 or "3"; none for anything else."""
    found = number(value)
    if found is None or not math.isfinite(found) or found < 0 or found != int(found):
        return None
    return int(found)


def step_name(names: Collection[str]) -> str | None:
    """Find the name under which a log has its step."""
    exact = next((name for name in STEP_NAMES if name in names), None)
    if exact is not None:
        return exact
    by_lower = {name.lower(): name for name in names}
    return next((by_lower[name] for name in STEP_NAMES if name in by_lower), None)


def flat(obj: Mapping[str, Any], prefix: str = "", level: int = 1) -> dict[str, Any]:
    """Join the keys of nested mappings by ``/``; lists stay as they are, what is nested absurdly deep is left out."""
    found: dict[str, Any] = {}
    for key, value in obj.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if level < _DEEPEST:
                found |= flat(cast("Mapping[str, Any]", value), f"{name}/", level + 1)
        else:
            found[name] = value
    return found


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Keep what is a number; the keys that kltune lists under ``non_finite`` become NaN."""
    lost: object = row.get("non_finite")
    found: dict[str, float] = {}
    for name, value in row.items():
        if (value_read := number(value)) is not None:
            found[intern(name)] = value_read
    if isinstance(lost, list):
        found.update((str(name), math.nan) for name in cast("list[object]", lost) if name in row)
    return found
