"""What a comparison over model sizes found, as values; and the same as one strict JSON object and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from kltune.errors import StudyError
from kltune.statistics.drift import Interval

SCHEMA: Final = 1
FILE: Final = "transfer.json"
PLOT: Final = "transfer.png"


class Kind(StrEnum):
    """A verdict."""

    TRANSFERS = "transfers"
    SHIFTS = "shifts"
    UNKNOWN = "can't tell"


@dataclass(frozen=True, slots=True)
class Sized:
    """One study."""

    study: str
    """Name of its folder."""
    base: str
    parameters: int
    """Of the base model."""
    learning_rate: float
    sigma_r: float | None
    """Group standard deviation of the proxy under the reference, raw reward."""
    judged: int
    """Trials with a value."""
    budget: int
    """Trials that the spec asks for."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number and what becomes of it with size."""

    key: str
    name: str
    unit: str
    by_study: tuple[Interval, ...]
    """In the order of the studies, smallest first."""
    factor: Interval
    """Largest model over smallest."""
    pairs: tuple[Interval, ...]
    """Larger over smaller, for every two sizes."""
    exponent: Interval
    """The factor is the ratio of the parameters to this power."""
    kind: Kind
    words: str

    @property
    def verdict(self) -> str:
        """``transfers``, ``shifts by a factor 3.1 (2.1 to 4.6)`` or ``can't tell``."""
        if self.kind is not Kind.SHIFTS:
            return self.kind.value
        return f"shifts by a factor {factor_words(self.factor)}"


@dataclass(frozen=True, slots=True)
class Ranking:
    """How two sizes rank the same settings."""

    smaller: str
    larger: str
    correlation: Interval
    """Spearman's, noise of prompts taken out."""
    reliability: tuple[float, float] | None
    """Each study's agreement with itself, half of the prompts against the other half."""
    num_settings: int
    num_pairs: int
    num_alike: int
    kind: Kind
    words: str


@dataclass(frozen=True, slots=True)
class MatchedSetting:
    """One setting that every study tried."""

    label: str
    values: tuple[float, ...]
    """Gold, in the order of the studies."""


@dataclass(frozen=True, slots=True)
class TransferResult:
    """A comparison over model sizes."""

    studies: tuple[Sized, ...]
    """Smallest first."""
    matched: tuple[MatchedSetting, ...]
    unmatched: int
    """Settings that not every study judged; left out."""
    rankings: tuple[Ranking, ...]
    quantities: tuple[Quantity, ...]
    notes: tuple[str, ...] = ()

    @property
    def beta(self) -> Quantity:
        """What becomes of the best beta."""
        return next(q for q in self.quantities if q.key == "beta")

    def as_json(self) -> Mapping[str, object]:
        """Plain values; ``verdict`` and ``words`` are those of the best beta."""
        return {
            "verdict": self.beta.verdict,
            "words": self.beta.words,
            "studies": [asdict(study) for study in self.studies],
            "matched": [asdict(setting) for setting in self.matched],
            "unmatched": self.unmatched,
            "rankings": [asdict(ranking) for ranking in self.rankings],
            "quantities": [{**asdict(q), "verdict": q.verdict} for q in self.quantities],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TransferResult:
        """Read back what ``as_json`` gave.

        Raises:
            StudyError: not the result of a comparison over sizes.
        """
        try:
            return cls(
                studies=tuple(Sized(**study) for study in data["studies"]),
                matched=tuple(
                    MatchedSetting(row["label"], tuple(row["values"])) for row in data["matched"]
                ),
                unmatched=data["unmatched"],
                rankings=tuple(_ranking(row) for row in data["rankings"]),
                quantities=tuple(_quantity(row) for row in data["quantities"]),
                notes=tuple(data["notes"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(f"{FILE}: not a comparison over model sizes ({error!r})") from error


def factor_words(factor: Interval) -> str:
    """``3.1 (2.1 to 4.6)``; an interval without an end says so."""
    value = "of unknown size" if factor.value is None else f"{factor.value:.3g}"
    low = "any lower" if factor.low is None else f"{factor.low:.3g}"
    high = "any higher" if factor.high is None else f"{factor.high:.3g}"
    return f"{value} ({low} to {high})"


def _quantity(row: Mapping[str, Any]) -> Quantity:
    rest = {k: row[k] for k in ("key", "name", "unit", "words")}
    return Quantity(
        **rest,
        by_study=tuple(Interval(**interval) for interval in row["by_study"]),
        factor=Interval(**row["factor"]),
        pairs=tuple(Interval(**interval) for interval in row["pairs"]),
        exponent=Interval(**row["exponent"]),
        kind=Kind(row["kind"]),
    )


def _ranking(row: Mapping[str, Any]) -> Ranking:
    own = row["reliability"]
    rest = ("smaller", "larger", "num_settings", "num_pairs", "num_alike", "words")
    return Ranking(
        **{k: row[k] for k in rest},
        correlation=Interval(**row["correlation"]),
        reliability=None if own is None else (own[0], own[1]),
        kind=Kind(row["kind"]),
    )
