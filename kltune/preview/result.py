"""Everything a preview found, as values; the same as one strict JSON object, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from kltune.errors import StudyError
from kltune.metrics.jsonl import read_json

FILE: Final = "preview.json"

Kind = Literal["tilt", "best-of-n"]
Scorer = Literal["proxy", "gold"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its 95 % interval over prompts; an end that the data leave open is None."""

    value: float
    low: float | None
    high: float | None

    def is_clearly_above(self, other: Interval) -> bool:
        """Whether the two intervals don't meet and this one is the higher."""
        return self.low is not None and other.high is not None and self.low > other.high


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


Ends = tuple[float | None, float | None]
"""Lower and upper end of a range; None: nothing is suggested for that end."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Ranges to search; an end on whose side nothing was seen is the spec's own."""

    beta: Ends | None
    """Reward per nat of sequence KL."""
    target_kl: Ends | None
    """In ``kl_unit``."""
    kl_unit: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Needed:
    """Completions per prompt to see up to one KL."""

    kl_seq: float
    tilt: float
    best_of_n: int | None
    """None: best-of-n shows it already."""


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

    agreement: Interval | None
    """None: proxy or gold never varies within a prompt, so it is undefined."""
    sigma_r: Interval
    num_prompts: int
    num_samples: int
    """Completions per prompt."""

    def agrees_better(self, elsewhere: Interval | None) -> bool:
        """Whether proxy and gold correlate clearly better here than there."""
        if self.agreement is None or elsewhere is None:
            return False
        return self.agreement.is_clearly_above(elsewhere)


@dataclass(frozen=True, slots=True)
class Forecast:
    """A preview."""

    subject: Subject
    sigma_r: Interval
    """Standard deviation of the proxy within a prompt, on these prompts."""
    agreement: Interval | None
    """Correlation of proxy and gold within a prompt; None: one of them never varies, so it is undefined."""
    curves: tuple[Curve, ...]
    readings: tuple[Reading, ...]
    """The one to go by first."""
    suggestion: Suggestion
    needed: tuple[Needed, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    train: TrainLook | None = None
    """None: train prompts were not looked at."""
    flat: tuple[Scorer, ...] = ()
    """What gives every completion of a prompt the same score."""

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
            ValueError: it is something else.
        """
        _check_finite(data)
        found = _adapter().validate_python(data)
        kinds = {curve.kind for curve in found.curves}
        if len(kinds) < 2 or not all(curve.points for curve in found.curves) or not found.readings:
            raise ValueError("a curve or its reading is missing")
        return found


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
    except OSError as error:
        raise StudyError(f"{path}: can't be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        why = f"{where}: {first['msg']}"
        raise StudyError(f"{path}: not a preview that this kltune can read ({why})") from error
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{path}: not a preview that this kltune can read ({error})") from error


def interval(value: float, draws: Sequence[float] | NDArray[np.float64]) -> Interval:
    """A value and the 2.5 and 97.5 percentiles of its bootstrap draws."""
    low, high = (float(x) for x in np.quantile(draws, (0.025, 0.975)))
    return Interval(
        value, low if math.isfinite(low) else None, high if math.isfinite(high) else None
    )


@cache
def _adapter() -> TypeAdapter[Forecast]:
    return TypeAdapter(Forecast)


def _check_finite(value: object) -> None:
    """Refuse numbers that strict JSON has no form for; Python's own reader takes them."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"it holds {value}")
    if isinstance(value, Mapping):
        for part in cast("Mapping[object, object]", value).values():
            _check_finite(part)
    elif isinstance(value, list | tuple):
        for part in cast("Sequence[object]", value):
            _check_finite(part)
