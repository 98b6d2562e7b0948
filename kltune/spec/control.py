"""How controllers act, beyond what is searched: rules, bounds, smoothing, schedules, targets.

A share of the run is step / steps, from 0 at the first step. Rules and their sources:
kl-reference.md §2.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.search import SearchSpec
from kltune.spec.trial import ControllerKind

Stages = tuple[
    tuple[Annotated[float, Field(strict=True)], Annotated[float, Field(strict=True)]], ...
]
"""Pairs [share of the run, factor from there on]; strict: `true` is no number."""


class ThresholdSpec(Closed):
    """The rule of ``controller: threshold``: a band around the target, a factor on either side of it."""

    above: PositiveFloat = 1.5
    """KL above this x target raises beta."""

    below: PositiveFloat = 1 / 1.5
    """KL below this x target lowers beta."""

    up: float = Field(default=1.5, gt=1)
    """Factor of a rise."""

    down: float = Field(default=1 / 1.5, gt=0, lt=1)
    """Factor of a fall."""

    every: PositiveInt = 5
    """Steps between looks; KL answers beta over several steps."""

    @model_validator(mode="after")
    def _is_a_band(self) -> Self:
        if self.below > self.above:
            raise FieldProblems(
                ("below", f"must not be above `above` ({self.above:g}) (got {self.below:g})")
            )
        return self


class CalibrateSpec(Closed):
    """A target that is measured: factor x median KL of the trial's own warm-up, beta held until then."""

    share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the run that is warm-up."""

    factor: PositiveFloat = 1.0
    """Target / median."""


class ControlSpec(Closed):
    """All of it; the defaults leave the searched controllers as their sources have them."""

    ema: float = Field(default=0.0, ge=0, lt=1)
    """Weight of the past in the KL that a controller sees; 0: the last step alone."""

    beta_min: PositiveFloat | None = None
    """Lower bound of a beta that steers KL, in beta_unit; a fixed or scheduled beta is as written."""

    beta_max: PositiveFloat | None = None
    """Upper bound of a beta that steers KL, in beta_unit."""

    threshold: ThresholdSpec = ThresholdSpec()
    """The rule of ``controller: threshold``."""

    schedule: Stages = ((0.0, 1.0),)
    """``controller: schedule``: pairs [share of the run, factor of beta from there on]."""

    targets: Stages = ((0.0, 1.0),)
    """Staged target: pairs [share of the run, factor of the target from there on]."""

    calibrate: CalibrateSpec | None = None
    """Measure the target instead of searching it."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        problems = [*_stage_problems("schedule", self.schedule, lowest=0.0)]
        problems += _stage_problems("targets", self.targets, lowest=None)
        low, high = self.beta_min, self.beta_max
        if low is not None and high is not None and low >= high:
            problems.append(("beta_min", f"must be below beta_max = {high:g} (got {low:g})"))
        if problems:
            raise FieldProblems(*problems)
        return self


def _stage_problems(
    name: str, stages: tuple[tuple[float, float], ...], lowest: float | None
) -> list[tuple[str, str]]:
    """``lowest``: the smallest factor allowed; none: it must be above 0."""
    shares = [share for share, _ in stages]
    problems: list[tuple[str, str]] = []
    if not stages or shares[0] != 0:
        problems.append((name, f"the first pair must start at share 0 (got {list(stages)})"))
    if any(not 0 <= share < 1 for share in shares) or sorted(set(shares)) != shares:
        problems.append((name, f"shares must rise within 0 (included) and 1 (got {shares})"))
    wrong = [f for _, f in stages if (f <= 0 if lowest is None else f < lowest)]
    if wrong:
        allowed = "above 0" if lowest is None else f"{lowest:g} or more"
        problems.append((name, f"factors must be {allowed} (got {wrong[0]:g})"))
    return problems


@dataclass(frozen=True, slots=True)
class Preset:
    """A threshold rule of the literature, by name."""

    rule: ThresholdSpec
    source: str


PRESETS: Final[Mapping[ControllerKind, Preset]] = MappingProxyType(
    {
        ControllerKind.THRESHOLD_PPO: Preset(
            ThresholdSpec(above=1.5, below=1 / 1.5, up=2.0, down=0.5, every=1),
            "PPO paper (1707.06347); there the distance is old policy to new, here policy to reference",
        ),
        ControllerKind.THRESHOLD_20_UNEVEN: Preset(
            ThresholdSpec(above=1.2, below=0.8, up=1.2, down=0.8, every=5),
            "field guides: every several steps; an up and a down leave beta at .96 of where it was",
        ),
        ControllerKind.THRESHOLD_20: Preset(
            ThresholdSpec(above=1.0, below=0.8, up=1.2, down=1 / 1.2, every=50),
            "field guides: every 50-100 steps, usually on an EMA of KL",
        ),
        ControllerKind.THRESHOLD_50: Preset(
            ThresholdSpec(above=1.5, below=1 / 1.5, up=1.5, down=1 / 1.5, every=10),
            "field guides: every N steps",
        ),
    }
)


def threshold_rule(kind: ControllerKind, control: ControlSpec) -> ThresholdSpec:
    """The rule that a threshold controller follows."""
    preset = PRESETS.get(kind)
    return control.threshold if preset is None else preset.rule


def stage_factor(stages: Sequence[tuple[float, float]], share: float) -> float:
    """The factor that holds at ``share`` of the run: that of the last stage begun by then."""
    return [factor for start, factor in stages if start <= share][-1]


def warmup_steps(calibrate: CalibrateSpec, steps: int) -> int:
    """Steps whose KL measures the target: those that begin within the warm-up's share."""
    num = math.ceil(calibrate.share * steps)
    # 0.07 x 100 is a hair above 7 in floating point.
    return num if (num - 1) / steps < calibrate.share else num - 1


def control_problems(
    search: SearchSpec, control: ControlSpec, others: Collection[ControllerKind] = ()
) -> list[tuple[str, str]]:
    """What search and control leave open or contradict, by field; ``others``: controllers of recipes."""
    kinds = [ControllerKind(str(value)) for value in search.controller.values()]
    return [
        *_target_problems(search, control, kinds),
        *_idle_problems(control, kinds, others),
        *_bound_problems(search, control, kinds),
    ]


def _target_problems(
    search: SearchSpec, control: ControlSpec, kinds: Sequence[ControllerKind]
) -> list[tuple[str, str]]:
    """A controller that steers KL needs one target: searched or measured."""
    steering = [kind.value for kind in kinds if kind.has_target]
    target = search.target_kl
    if not steering:
        text = f"has no effect, since controller never steers KL ({_names(kinds)}): remove it"
        return [] if target is None else [("search.target_kl", text)]
    if control.calibrate is not None:
        text = "can't be searched where control.calibrate measures it: remove one of the two"
        return [] if target is None else [("search.target_kl", text)]
    if target is None:
        text = f"needed, since controller can be {steering[0]} (or measure it: control.calibrate)"
        return [("search.target_kl", text)]
    allowed = [{}, {"controller": steering[0]}] if len(steering) == 1 else [{}]
    if target.when in allowed:
        return []
    text = (
        f"can only be {{controller: {steering[0]}}}: every {steering[0]} trial needs it"
        if len(steering) == 1
        else f"leaves some trials without a target: {', '.join(steering)} all need one; remove it"
    )
    return [("search.target_kl.when", f"{text} (got {target.when})")]


def _idle_problems(
    control: ControlSpec, kinds: Sequence[ControllerKind], others: Collection[ControllerKind]
) -> list[tuple[str, str]]:
    """Settings of controllers that no trial has."""
    is_steered = any(kind.has_target for kind in kinds)
    never_steers = f"never steers KL ({_names(kinds)})"
    needs: dict[str, tuple[bool, str]] = {
        "threshold": (
            ControllerKind.THRESHOLD in kinds,
            "is never threshold (the named rules bring their own numbers)",
        ),
        "schedule": (ControllerKind.SCHEDULE in kinds, "is never schedule"),
        "calibrate": (is_steered, never_steers),  # a recipe has a target of its own
    }
    for name in ("ema", "beta_min", "beta_max", "targets"):
        is_used = is_steered or any(kind.has_target for kind in others)
        needs[name] = (is_used, never_steers)
    default = ControlSpec()
    return [
        (f"control.{name}", f"has no effect, since controller {why}: remove it")
        for name, (is_used, why) in needs.items()
        if not is_used and getattr(control, name) != getattr(default, name)
    ]


def _bound_problems(
    search: SearchSpec, control: ControlSpec, kinds: Sequence[ControllerKind]
) -> list[tuple[str, str]]:
    """Where beta starts, a controller must be able to leave it."""
    if not any(kind.has_target for kind in kinds):
        return []
    low, high = search.beta.smallest(), search.beta.largest()
    problems: list[tuple[str, str]] = []
    if low is not None and control.beta_min is not None and low < control.beta_min:
        text = f"is above the lowest beta that a trial starts at, search.beta = {low:g}"
        problems.append(("control.beta_min", f"{text} (got {control.beta_min:g})"))
    if high is not None and control.beta_max is not None and high > control.beta_max:
        text = f"is below the highest beta that a trial starts at, search.beta = {high:g}"
        problems.append(("control.beta_max", f"{text} (got {control.beta_max:g})"))
    return problems


def _names(kinds: Collection[ControllerKind]) -> str:
    return ", ".join(sorted(kind.value for kind in kinds))
