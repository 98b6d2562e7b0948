"""A study in, where each of its trials stands on the map of the search out, for picture and chart alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kltune.report.charts.axes import log_ticks
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.penalty import Penalty
from kltune.spec.trial import KLUnit
from kltune.trial.words import KL_UNIT, number

SHAPES = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "cross",
    "star",
    "hexagon",
    "triangle-down",
    "pentagon",
    "triangle-right",
    "triangle-left",
    "diamond-tall",
    "hexagon2",
    "octagon",
    "x",
    "star-square",
    "star-diamond",
)
"""One a penalty that was tried, in the order of `Penalty`; plotly.js's names."""
_NO_PENALTY = "no penalty"
_CROWDED = 60
"""Trials from which those of a strip are spread over its width, each by its number."""
_SPREAD = 0.9
_STRIP = 0.12
"""Width of a strip beside a logarithmic axis, as a share of its length."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis."""

    title: str
    is_log: bool
    ticks: tuple[tuple[float, str], ...] = ()
    """Of a logarithmic axis: place and label, strips included."""
    walls: tuple[float, ...] = ()
    """Between the strips and the axis."""
    limits: tuple[float, float] = (0.0, 1.0)
    """Of a logarithmic axis, strips included."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one trial stands."""

    row: TrialRow
    x: float
    y: float
    value: float | None
    is_feasible: bool
    shape: int
    """Index of `SHAPES`."""
    words: str
    """What its shape and filling say."""


@dataclass(frozen=True, slots=True)
class Places:
    """The whole map."""

    is_map: bool
    """Beta against target; else value against beta."""
    of_trials: tuple[Place, ...]
    """The lowest value first: the best are drawn on top."""
    x: Scale
    y: Scale
    num_left_out: int
    """Trials without a value, where the value is an axis."""
    kl_unit: KLUnit


def search_places(study: StudyRows) -> Places:
    """Place every trial; where no trial had a target of KL, the value is an axis."""
    unit, shapes = study.spec.kl_unit, _shapes(study.trials)
    rows = sorted(study.trials, key=lambda row: (_value(row) is not None, _value(row) or 0.0))
    beta, place_beta = _axis(
        f"beta at the start ({study.beta_unit_words})",
        [row.setting.beta for row in rows],
        [("0", lambda row: row.setting.beta == 0)],
        lambda row: row.setting.beta,
        rows,
    )
    if not any(row.setting.target_kl is not None for row in rows):
        kept = [row for row in rows if _value(row) is not None]
        places = tuple(_place(row, place_beta(row), _value(row) or 0.0, shapes) for row in kept)
        value = Scale(f"value (gold, {study.spec.objective.metric})", is_log=False)
        return Places(False, places, beta, value, len(rows) - len(kept), unit)
    target, place_target = _axis(
        f"target of KL ({KL_UNIT[unit]})",
        [t for row in rows if (t := row.setting.target_kl) is not None],
        [("no target", _has_no_target), ("measured", _is_measured)],
        lambda row: row.setting.target_kl or 0.0,
        rows,
    )
    places = tuple(_place(row, place_target(row), place_beta(row), shapes) for row in rows)
    return Places(True, places, target, beta, 0, unit)


def kind_of(place: Place) -> tuple[int, bool, bool]:
    """What one entry of the legend stands for."""
    return (place.shape if place.value is not None else -1, place.is_feasible, place.value is None)


def kinds(places: Places) -> list[tuple[int, bool, bool]]:
    """Those on the map, each once: by shape, filled ones first, those without a value last."""
    return sorted(
        {kind_of(p) for p in places.of_trials}, key=lambda kind: (kind[2], kind[0], not kind[1])
    )


def _place(row: TrialRow, x: float, y: float, shapes: Mapping[Penalty | None, int]) -> Place:
    penalty = _penalty(row)
    value = _value(row)
    is_feasible = row.is_feasible is not False
    words = _NO_PENALTY if penalty is None else penalty.value
    if value is None:
        words, is_feasible = "no value", True
    elif not is_feasible:
        words += ", outside the limits"
    return Place(row, x, y, value, is_feasible, shapes[penalty], words)


def _penalty(row: TrialRow) -> Penalty | None:
    return row.setting.penalty if row.setting.beta > 0 else None


def _shapes(rows: Sequence[TrialRow]) -> Mapping[Penalty | None, int]:
    """The most unlike shapes for the penalties that were tried; the cross is kept for none."""
    tried = {_penalty(row) for row in rows}
    order = [index for index, name in enumerate(SHAPES) if name != "x"]
    listed = [penalty for penalty in Penalty if penalty in tried]
    found: dict[Penalty | None, int] = {
        penalty: order[place % len(order)] for place, penalty in enumerate(listed)
    }
    return {**found, None: SHAPES.index("x")}


def _value(row: TrialRow) -> float | None:
    value = row.value
    return value if value is not None and math.isfinite(value) else None


def _has_no_target(row: TrialRow) -> bool:
    return row.setting.target_kl is None and not row.setting.controller.has_target


def _is_measured(row: TrialRow) -> bool:
    return row.setting.target_kl is None and row.setting.controller.has_target


def share_of(row: TrialRow) -> float:
    """A place from -0.5 to 0.5 that neighbouring numbers don't share: multiples of the golden ratio."""
    return (row.number * 0.618034) % 1 - 0.5


def _axis(
    title: str,
    values: Sequence[float],
    strips: Sequence[tuple[str, Callable[[TrialRow], bool]]],
    place: Callable[[TrialRow], float],
    rows: Sequence[TrialRow],
) -> tuple[Scale, Callable[[TrialRow], float]]:
    """A logarithmic axis of the values above 0 and, below it, the strips that some trial needs."""
    above = [value for value in values if value > 0]
    low, high = (min(above), max(above)) if above else (1.0, 1.0)
    length = max(math.log10(high / low), 0.5)
    used = [(label, is_in) for label, is_in in strips if any(map(is_in, rows))]
    width = 10 ** (length * _STRIP)
    middles = [low / width ** (1.5 * (index + 1)) for index in range(len(used))]
    ticks = [(at, label) for at, (label, _) in zip(middles, used, strict=True)]
    ticks += [(tick, number(tick)) for tick in (log_ticks(low, high) if above else [])]
    scale = Scale(
        title=title,
        is_log=True,
        ticks=tuple(ticks),
        walls=tuple(at * width**0.75 for at in middles),
        limits=((middles[-1] if middles else low) / width**0.6, high * width**0.6),
    )

    def placed(row: TrialRow) -> float:
        for at, (_, is_in) in zip(middles, used, strict=True):
            if is_in(row):
                return at * width ** (_SPREAD * share_of(row)) if len(rows) > _CROWDED else at
        return place(row)

    return scale, placed
