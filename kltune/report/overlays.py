"""A study and its laws in, the curves that lie over gold and proxy against KL out: forecast and fitted law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from kltune.errors import StudyError
from kltune.preview.result import Forecast, read_forecast
from kltune.report.law_findings import LawFindings, TrialLaw
from kltune.report.rows import StudyRows
from kltune.spec.trial import KLUnit
from kltune.statistics.law import LawVerdict

_PLACES: Final = 80
"""Points of the law's curve."""

Points = tuple[tuple[float, float], ...]
"""(√KL in √(nats/sequence), score)."""


@dataclass(frozen=True, slots=True)
class Line:
    """A curve with its name."""

    name: str
    points: Points


@dataclass(frozen=True, slots=True)
class Overlay:
    """What is drawn over the trials, and the unit that their settings are written in."""

    kl_unit: KLUnit
    gold: tuple[Line, ...] = ()
    proxy: tuple[Line, ...] = ()

    def of(self, field: str) -> tuple[Line, ...]:
        """The curves of gold or of proxy."""
        return self.gold if field == "gold" else self.proxy


def overlay(study: StudyRows, laws: LawFindings | None = None) -> Overlay:
    """The forecast in the study's folder where a usable one lies there, and the recommended trial's law."""
    forecast = usable_forecast(study)
    gold = [] if forecast is None else _forecast_lines(forecast, "gold")
    proxy = [] if forecast is None else _forecast_lines(forecast, "proxy")
    if laws is not None and laws.beta is not None:
        gold += _law_lines(laws.beta.law)
    return Overlay(study.spec.kl_unit, tuple(gold), tuple(proxy))


def usable_forecast(study: StudyRows) -> Forecast | None:
    """The preview in the study's folder; None where there is none of this model that can be read."""
    try:
        forecast = read_forecast(study.path)
    except StudyError:
        return None  # the forecast's own section says why
    if forecast is not None and forecast.subject.model != study.spec.model.base:
        return None
    return forecast


def _forecast_lines(forecast: Forecast, field: str) -> list[Line]:
    tilt = next((curve for curve in forecast.curves if curve.kind == "tilt"), None)
    if tilt is None:
        return []
    points = tuple(
        (math.sqrt(max(0.0, p.kl_seq)), (p.gold if field == "gold" else p.proxy).value)
        for p in tilt.points
    )
    return [Line("forecast: best policy at each KL", points)]


def _law_lines(law: TrialLaw) -> list[Line]:
    start, fit = law.row.start, law.fit
    if fit.a is None or start is None or not math.isfinite(start.gold):
        return []
    d_P = np.linspace(0.02, math.sqrt(fit.kl_range[1]), _PLACES)
    gold_P = start.gold + fit.gain(d_P)
    rejected = " (rejected)" if fit.verdict is LawVerdict.REJECTED else ""
    points = tuple(zip(d_P.tolist(), gold_P.tolist(), strict=True))
    return [Line(f"law fitted to trial {law.row.number}{rejected}", points)]
