"""A KL controller's numbers in; what it does in a step and in a run out.

Formula and threshold rules: kl-reference.md §2 (Ziegler et al. 2019, 1909.08593).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kltune.explain.flags import above_zero, at_least_1, finite, not_negative, one_of, one_or_more
from kltune.spec.control import PRESETS
from kltune.spec.controller_doubts import INERT_BELOW, inert_horizon
from kltune.spec.trial import CONTROLLER_CLIP
from kltune.units import kl_per_sequence, kl_per_token

GAINS: Final = (1.0, 0.5, 0.1)
"""Gains whose horizons the table of speeds shows."""

HORIZONS: Final = (5_000.0, 10_000.0, 20_000.0)

FAST: Final = 1.0
"""Gain above which a step may change beta by more than the clip: KL answers later than that."""


class Liveliness(StrEnum):
    """Whether a controller can do its work in the run."""

    INERT = "inert"
    LIVE = "live"
    FAST = "fast"
    STUCK = "stuck"
    BROKEN = "broken"
    """A step at KL 0 takes beta to 0 or below: a sweep refuses the horizon."""


@dataclass(frozen=True, slots=True)
class ControllerQuestion:
    """A controller, a KL that it sees, and a run."""

    target: float = 0.1
    unit: str = "token"
    kl: float = 0.15
    """In `unit`, as `target`."""
    horizon: float = 10_000
    """Sequences."""
    rows: int = 64
    """Completions of a step, over all prompts."""
    steps: int = 80
    beta: float = 0.1
    tokens: float = 40
    """Mean tokens of a completion: for the target in the other unit."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What a horizon does at the question's completions per step, at most."""

    horizon: float
    gain: float
    """rows / horizon."""
    factor: float | None
    """Of beta in one step at full error; none, as the two below, where the horizon is broken."""
    steps_to_double: int | None
    most_in_run: float | None
    """Factor of beta over the run at full error."""
    is_asked: bool


@dataclass(frozen=True, slots=True)
class ThresholdFacts:
    """A threshold rule of the literature."""

    name: str
    above: float
    below: float
    up: float
    down: float
    every: int
    factor_now: float
    """What it would do with this KL at its next look."""
    most_in_run: float
    """Factor of beta over the run if KL stayed high."""
    least_in_run: float
    """If it stayed low."""
    source: str


@dataclass(frozen=True, slots=True)
class ControllerFacts:
    """What `explain controller` shows."""

    target: float
    kl: float
    unit: str
    beta: float
    clip: float
    raw_error: float
    """KL / target - 1."""
    error: float
    """Clipped to +- clip."""
    gain: float
    factor: float | None
    """Of beta in the next step; none, as the four below, where the horizon is broken."""
    beta_next: float | None
    most: float | None
    """Highest beta that the run can reach."""
    least: float | None
    steps_to_double: int | None
    """At full error."""
    liveliness: Liveliness
    shortest_horizon: float
    """Horizon at and below which it is broken, sequences."""
    live_horizon: float
    """Horizon up to which beta can rise by 10 % in the run, sequences."""
    target_other_unit: float
    other_unit: str
    speeds: tuple[Speed, ...]
    thresholds: tuple[ThresholdFacts, ...]


def explain_controller(question: ControllerQuestion) -> ControllerFacts:
    """Compute everything of the screen.

    Raises:
        SpecError: a flag's value makes no sense.
    """
    _check(question)
    raw = question.kl / question.target - 1
    error = max(-CONTROLLER_CLIP, min(CONTROLLER_CLIP, raw))
    gain = question.rows / question.horizon
    is_broken = _is_broken(question.rows, question.horizon)
    factor = None if is_broken else 1 + error * gain
    convert = kl_per_sequence if question.unit == "token" else kl_per_token
    most, least = (run_factor(sign * CONTROLLER_CLIP * gain, question.steps) for sign in (1, -1))
    doubles = not is_broken and question.beta > 0
    return ControllerFacts(
        target=question.target,
        kl=question.kl,
        unit=question.unit,
        beta=question.beta,
        clip=CONTROLLER_CLIP,
        raw_error=raw,
        error=error,
        gain=gain,
        factor=factor,
        beta_next=None if factor is None else question.beta * factor,
        most=None if is_broken else _times(question.beta, most),
        least=None if is_broken else _times(question.beta, least),
        steps_to_double=steps_to_double(question.rows, question.horizon) if doubles else None,
        liveliness=Liveliness.BROKEN if is_broken else _liveliness(question.beta, most, gain),
        shortest_horizon=CONTROLLER_CLIP * question.rows,
        live_horizon=inert_horizon(question.rows, question.steps),
        target_other_unit=convert(question.target, question.tokens),
        other_unit="sequence" if question.unit == "token" else "token",
        speeds=_speeds(question),
        thresholds=_thresholds(question),
    )


def run_factor(change: float, steps: int) -> float:
    """Factor of beta after ``steps`` steps that each multiply it by ``1 + change``."""
    try:
        return max(0.0, 1 + change) ** steps
    except OverflowError:
        return math.inf


def steps_to_double(rows: float, horizon: float) -> int | None:
    """Steps until beta is twice as high, to the nearest one, at full error; none where rounding makes it never."""
    speed = math.log1p(CONTROLLER_CLIP * rows / horizon)
    return max(1, round(math.log(2) / speed)) if speed > 1e-15 else None


def speed(rows: float, horizon: float, steps: int, *, is_asked: bool = False) -> Speed:
    """What a horizon does at most."""
    change = CONTROLLER_CLIP * rows / horizon
    is_broken = _is_broken(rows, horizon)
    return Speed(
        horizon=horizon,
        gain=rows / horizon,
        factor=None if is_broken else 1 + change,
        steps_to_double=None if is_broken else steps_to_double(rows, horizon),
        most_in_run=None if is_broken else run_factor(change, steps),
        is_asked=is_asked,
    )


def _is_broken(rows: float, horizon: float) -> bool:
    """Whether a step at KL 0 multiplies beta by 0 or less, as a sweep refuses it."""
    return horizon <= CONTROLLER_CLIP * rows


def _times(beta: float, factor: float) -> float:
    return beta * factor if beta else 0.0


def _speeds(question: ControllerQuestion) -> tuple[Speed, ...]:
    horizons = {question.rows / gain for gain in GAINS} | {*HORIZONS, question.horizon}
    return tuple(
        speed(question.rows, h, question.steps, is_asked=h == question.horizon)
        for h in sorted(horizons)
    )


def _thresholds(question: ControllerQuestion) -> tuple[ThresholdFacts, ...]:
    ratio = question.kl / question.target
    found: list[ThresholdFacts] = []
    for kind, preset in PRESETS.items():
        rule = preset.rule
        # A look after the last step would move nothing.
        looks = (question.steps - 1) // rule.every
        now = rule.up if ratio > rule.above else rule.down if ratio < rule.below else 1.0
        found.append(
            ThresholdFacts(
                name=kind.value,
                above=rule.above,
                below=rule.below,
                up=rule.up,
                down=rule.down,
                every=rule.every,
                factor_now=now,
                most_in_run=run_factor(rule.up - 1, looks),
                least_in_run=run_factor(rule.down - 1, looks),
                source=preset.source,
            )
        )
    return tuple(found)


def _liveliness(beta: float, most: float, gain: float) -> Liveliness:
    if beta == 0:
        return Liveliness.STUCK
    if most < INERT_BELOW:
        return Liveliness.INERT
    return Liveliness.FAST if gain > FAST else Liveliness.LIVE


def _check(question: ControllerQuestion) -> None:
    above_zero("--target", question.target)
    one_of("--unit", question.unit, ("token", "sequence"))
    finite("--kl", question.kl)
    above_zero("--horizon", question.horizon)
    at_least_1("--rows", question.rows)
    one_or_more("--tokens", question.tokens)
    not_negative("--beta", question.beta)
    at_least_1("--steps", question.steps)
