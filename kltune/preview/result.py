"""Everything a preview found, as values; the same as one strict JSON object, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from kltune.errors import StudyError
from kltune.metrics.jsonl import read_json

FILE: Final = "preview.json"

Kind = Literal["tilt", "best-of-n"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its 95 % interval over prompts; an end that the data leave open is None."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """The mean over the prompts at one beta, or one n."""

    knob: float | None
    """beta in reward per nat of sequence KL (None: the reference itself), or n."""
    kl_seq: float
    """KL to the reference, nats per sequence: plug-in (tilt), or the upper bound (best-of-n)."""
    kl_token: float
    """The same over the mean completion length there, nats per token."""
    proxy: Interval
    gold: Interval
    effective: float | None = None
    """Effective samples that nine prompts in ten have at least; best-of-n: None."""
    tied_kl_seq: float | None = None
    """Best-of-n: KL with ties counted, from the sample; never above the bound."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points by rising KL; those that the sample can't carry are left out."""

    kind: Kind
    points: tuple[Point, ...]
    cut_knob: float | None = None
    """Highest beta that was cut for too few effective samples; None: none was."""

    @property
    def seen_kl_seq(self) -> float:
        """How far it reaches, nats per sequence."""
        return self.points[-1].kl_seq


class Verdict(StrEnum):
    """What gold does as the proxy is pushed."""

    TURNS = "turns"
    RISES = "rises"
    FALLS = "falls"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one curve says about gold; differences are held against an error of 2.5 % for the whole curve."""

    kind: Kind
    verdict: Verdict
    peak_kl_seq: Interval
    """KL at the highest gold, nats per sequence; an open end lies outside what the curve shows."""
    peak_kl_token: float
    peak_knob: float | None
    peak_gold: Interval
    gain: Interval
    """Gold at the peak less gold of the reference."""
    risen_kl_seq: float | None
    """From here on gold is clearly above its height at a lower KL; None: nowhere seen."""
    parted_kl_seq: float | None
    """From here on gold is clearly below its height at a lower KL, while the proxy is higher; None: nowhere seen."""
    seen_kl_seq: float


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Ranges to search."""

    beta: tuple[float, float] | None
    """Reward per nat of sequence KL."""
    target_kl: tuple[float, float] | None
    """In ``kl_unit``."""
    kl_unit: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Needed:
    """Completions per prompt to see up to one KL."""

    kl_seq: float
    tilt: float
    best_of_n: int


@dataclass(frozen=True, slots=True)
class Subject:
    """What was looked at."""

    name: str
    model: str
    split: str
    num_prompts: int
    num_samples: int
    """Completions per prompt of the reference."""
    seed: int
    temperature: float
    max_new_tokens: int
    mean_tokens: float
    """Tokens per completion of the reference."""
    tied_share: float
    """Share of the pairs of completions of one prompt with the same proxy."""
    kl_unit: str
    beta_unit: str
    policies: tuple[str, ...] = ()
    """Trained policies whose completions were weighed in."""
    samples_per_policy: int = 0


@dataclass(frozen=True, slots=True)
class TrainLook:
    """The same two numbers on some train prompts, which a learned proxy may know better."""

    agreement: Interval
    sigma_r: Interval
    num_prompts: int
    num_samples: int
    """Completions per prompt."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A preview."""

    subject: Subject
    sigma_r: Interval
    """Standard deviation of the proxy within a prompt, on these prompts."""
    agreement: Interval
    """Correlation of proxy and gold within a prompt."""
    curves: tuple[Curve, ...]
    readings: tuple[Reading, ...]
    """The one to go by first."""
    suggestion: Suggestion
    needed: tuple[Needed, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    train: TrainLook | None = None
    """None: train prompts were not looked at."""

    @property
    def reading(self) -> Reading:
        """The reading to go by."""
        return self.readings[0]

    def curve(self, kind: Kind) -> Curve:
        """The curve of a kind."""
        return next(curve for curve in self.curves if curve.kind == kind)

    def as_json(self) -> dict[str, Any]:
        """Plain values for :func:`kltune.metrics.jsonl.write_json`; ``from_json`` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Forecast:
        """Read what ``as_json`` gave.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        subject: dict[str, Any] = {**data["subject"]}
        subject["policies"] = tuple(subject["policies"])
        return cls(
            subject=Subject(**subject),
            sigma_r=Interval(**data["sigma_r"]),
            agreement=Interval(**data["agreement"]),
            curves=tuple(_curve(row) for row in data["curves"]),
            readings=tuple(_reading(row) for row in data["readings"]),
            suggestion=_suggestion(data["suggestion"]),
            needed=tuple(Needed(**row) for row in data["needed"]),
            seconds=float(data["seconds"]),
            notes=tuple(data["notes"]),
            train=_train(data.get("train")),
        )


def read_forecast(study_path: Path) -> Forecast | None:
    """The preview that lies in a study's folder; none where there is none.

    Raises:
        StudyError: the file can't be read.
    """
    path = study_path / FILE
    if not path.is_file():
        return None
    try:
        return Forecast.from_json(read_json(path))
    except (KeyError, TypeError, ValueError) as error:
        raise StudyError(f"{path}: not a preview that this kltune can read ({error})") from error


def interval(value: float, draws: Sequence[float] | NDArray[np.float64]) -> Interval:
    """A value and the 2.5 and 97.5 percentiles of its bootstrap draws."""
    low, high = (float(x) for x in np.quantile(draws, (0.025, 0.975)))
    return Interval(
        value, low if math.isfinite(low) else None, high if math.isfinite(high) else None
    )


def _train(row: Mapping[str, Any] | None) -> TrainLook | None:
    if row is None:
        return None
    fields: dict[str, Any] = {**row}
    for key in ("agreement", "sigma_r"):
        fields[key] = Interval(**row[key])
    return TrainLook(**fields)


def _curve(row: Mapping[str, Any]) -> Curve:
    return Curve(row["kind"], tuple(_point(point) for point in row["points"]), row["cut_knob"])


def _point(row: Mapping[str, Any]) -> Point:
    fields: dict[str, Any] = {**row}
    for key in ("proxy", "gold"):
        fields[key] = Interval(**row[key])
    return Point(**fields)


def _reading(row: Mapping[str, Any]) -> Reading:
    fields: dict[str, Any] = {**row, "verdict": Verdict(row["verdict"])}
    for key in ("peak_kl_seq", "peak_gold", "gain"):
        fields[key] = Interval(**row[key])
    return Reading(**fields)


def _suggestion(row: Mapping[str, Any]) -> Suggestion:
    beta, target = row["beta"], row["target_kl"]
    return Suggestion(
        beta=None if beta is None else (beta[0], beta[1]),
        target_kl=None if target is None else (target[0], target[1]),
        kl_unit=row["kl_unit"],
        reasons=tuple(row["reasons"]),
    )
