"""KL of the step just done in, the next step's beta out. No torch, no state of its own.

Steps count from 0 here: step i runs with the beta and the target of the state before it, and
stages hold at step i by the share i / steps. Rules: kl-reference.md §2.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

from kltune.spec.control import ControlSpec, stage_factor, threshold_rule, warmup_steps
from kltune.spec.trial import CONTROLLER_CLIP, ControllerKind, TrialSpec


@dataclass(frozen=True, slots=True)
class ControlFacts:
    """What does not change during a trial."""

    spec: TrialSpec
    control: ControlSpec
    steps: int
    """Steps of the whole run: stages and warm-up are shares of it."""
    num_sequences: int
    """Completions of one step: n of the proportional rule."""


@dataclass(frozen=True, slots=True)
class ControlState:
    """A controller between two steps; every field is a JSON value."""

    beta: float
    """Coefficient of the next step, in the study's beta_unit."""
    kl_ema: float | None = None
    """KL as the controller sees it, in kl_unit; none before the first finite one."""
    warmup: tuple[float, ...] = ()
    """KLs seen so far for a target that is measured; empty once it is."""
    calibrated: float | None = None
    """The measured target, before its stage's factor."""
    target: float | None = None
    """Target in force at the next step, in kl_unit; none without one and until it is measured."""
    at_bound: bool = False
    """Whether beta stands at beta_min or beta_max (or where a float ends)."""

    def to_json(self) -> dict[str, Any]:
        """The state as a JSON object; ``from_json`` gives the same state back."""
        return {**dataclasses.asdict(self), "warmup": list(self.warmup)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The state that ``to_json`` wrote."""
        fields: dict[str, Any] = {**data, "warmup": tuple(data["warmup"])}
        return cls(**fields)


def start_control(facts: ControlFacts) -> ControlState:
    """The state before the first step."""
    spec = facts.spec
    if spec.controller is ControllerKind.SCHEDULE:
        return ControlState(beta=spec.beta * stage_factor(facts.control.schedule, 0.0))
    if not spec.controller.has_target:
        return ControlState(beta=spec.beta)
    is_at_bound = spec.beta in _bounds(facts.control)
    return ControlState(spec.beta, target=_target(None, 0, facts), at_bound=is_at_bound)


def next_control(state: ControlState, kl: float, step: int, facts: ControlFacts) -> ControlState:
    """The state before step ``step``, after ``step`` steps; ``kl`` is that of the last one, in kl_unit.

    KL is judged by the target that was in force when it was measured. A non-finite KL says
    nothing: what follows the clock (a schedule, a staged target) goes on, the rest stays.
    """
    kind = facts.spec.controller
    if kind is ControllerKind.SCHEDULE:
        factor = stage_factor(facts.control.schedule, step / facts.steps)
        return dataclasses.replace(state, beta=facts.spec.beta * factor)
    if not kind.has_target:
        return state
    if math.isfinite(kl):
        state = _seen(state, kl, step, facts)
    return dataclasses.replace(state, target=_target(state.calibrated, step, facts))


def _seen(state: ControlState, kl: float, step: int, facts: ControlFacts) -> ControlState:
    weight = facts.control.ema
    value = kl if state.kl_ema is None else weight * state.kl_ema + (1 - weight) * kl
    state = dataclasses.replace(state, kl_ema=value)
    if state.target is None:
        return _warmed(state, kl, step, facts)
    wanted = state.beta * _factor(value / state.target, step, facts)
    low, high = _bounds(facts.control)
    beta = min(max(wanted, low), high)
    return dataclasses.replace(state, beta=beta, at_bound=beta in (low, high))


def _warmed(state: ControlState, kl: float, step: int, facts: ControlFacts) -> ControlState:
    """One more KL of the warm-up; at its end the target.

    It lasts until the median is above 0: no factor of beta brings KL to a target of 0.
    """
    calibrate = facts.control.calibrate
    assert calibrate is not None, "a target that is not given is measured"
    warmup = (*state.warmup, kl)
    if step < warmup_steps(calibrate, facts.steps) or median(warmup) <= 0:
        return dataclasses.replace(state, warmup=warmup)
    return dataclasses.replace(state, warmup=(), calibrated=calibrate.factor * median(warmup))


def _factor(relative_kl: float, step: int, facts: ControlFacts) -> float:
    """Factor of beta where KL is ``relative_kl`` times its target."""
    spec = facts.spec
    if spec.controller is ControllerKind.PROPORTIONAL:
        assert spec.horizon is not None, "a proportional controller has a horizon"
        error = max(-CONTROLLER_CLIP, min(CONTROLLER_CLIP, relative_kl - 1))
        return 1 + error * facts.num_sequences / spec.horizon
    rule = threshold_rule(spec.controller, facts.control)
    if step % rule.every:
        return 1.0
    if relative_kl > rule.above:
        return rule.up
    return rule.down if relative_kl < rule.below else 1.0


def _target(calibrated: float | None, step: int, facts: ControlFacts) -> float | None:
    given = facts.spec.target_kl
    target = calibrated if given is None else given
    if target is None:
        return None
    return target * stage_factor(facts.control.targets, step / facts.steps)


def _bounds(control: ControlSpec) -> tuple[float, float]:
    """Lowest and highest beta; where none is given, a beta that still is a positive finite number."""
    low, high = control.beta_min, control.beta_max
    return (
        sys.float_info.min if low is None else low,
        sys.float_info.max if high is None else high,
    )
