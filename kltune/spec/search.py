"""What Optuna may vary: ranges, choices and conditions, by parameter."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar, Self, TypeGuard

from pydantic import Field, ValidationInfo, field_validator, model_validator

from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.penalty import Penalty
from kltune.spec.trial import ControllerKind

Value = bool | int | float | str


class Dimension(Closed):
    """One searched parameter: exactly one of ``log``, ``uniform``, ``choice`` or ``value``.

    A bare scalar in YAML is a constant (``value``).
    """

    log: tuple[float, float] | None = None
    """Log-uniform between two positive numbers."""

    uniform: tuple[float, float] | None = None
    """Uniform between two numbers."""

    choice: tuple[Value, ...] | None = None
    """One of the listed values."""

    value: Value | None = None
    """A constant."""

    zero: bool = False
    """beta only: 0 is one more arm, run once per seed without penalty or controller."""

    when: dict[str, Value] = Field(default_factory=dict[str, Value])
    """Drawn only where these other parameters have these values."""

    @model_validator(mode="before")
    @classmethod
    def _scalar_is_constant(cls, data: Any) -> Any:
        return {"value": data} if isinstance(data, bool | int | float | str) else data

    @model_validator(mode="after")
    def _one_kind_and_sound(self) -> Self:
        kinds = [k for k in ("log", "uniform", "choice", "value") if getattr(self, k) is not None]
        if len(kinds) != 1:
            raise ValueError(
                "give exactly one of log: [low, high], uniform: [low, high], choice: [...] or a "
                f"constant (got {', '.join(kinds) or 'none of them'})"
            )
        problems = [*self._range_problems(), *self._choice_problems()]
        if problems:
            raise FieldProblems(*problems)
        return self

    def _range_problems(self) -> list[tuple[str, str]]:
        problems: list[tuple[str, str]] = []
        for kind, bounds in (("log", self.log), ("uniform", self.uniform)):
            if bounds is not None and not bounds[0] < bounds[1]:
                problems.append(
                    (kind, f"the first bound must be below the second (got {list(bounds)})")
                )
        return problems

    def _choice_problems(self) -> list[tuple[str, str]]:
        if self.choice is None:
            return []
        if not self.choice:
            return [("choice", "at least one value is needed (got an empty list)")]
        if len(set(self.choice)) != len(self.choice):
            return [("choice", f"values must differ (got {list(self.choice)})")]
        return []

    def values(self) -> tuple[Value, ...]:
        """All values that a discrete dimension can take; empty for a range."""
        if self.choice is not None:
            return self.choice
        return () if self.value is None else (self.value,)

    def numbers(self) -> tuple[float, ...]:
        """The bounds of a range, or every number that a discrete dimension can take."""
        if self.log is not None or self.uniform is not None:
            return self.log or self.uniform or ()
        return tuple(v for v in self.values() if _is_number(v))

    def smallest(self) -> float | None:
        """The smallest number that it can be; none where it holds no number."""
        return min(self.numbers(), default=None)

    def largest(self) -> float | None:
        """The largest number that it can be; none where it holds no number."""
        return max(self.numbers(), default=None)


def _is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class SearchSpec(Closed):
    """The search space. Whatever is left out keeps its default."""

    POSITIVE: ClassVar[tuple[str, ...]] = ("target_kl", "horizon", "learning_rate")

    beta: Dimension
    """KL coefficient, in ``beta_unit``."""

    penalty: Dimension = Dimension(value=Penalty.K2_LOSS.value)
    """Estimator and placement of the KL penalty."""

    controller: Dimension = Dimension(value=ControllerKind.FIXED.value)
    """fixed, proportional, schedule, threshold (its rule: control.threshold) or a named threshold rule."""

    target_kl: Dimension | None = None
    """Set point of a controller that has one, in ``kl_unit``."""

    horizon: Dimension | None = None
    """Time constant of the proportional controller, in sequences."""

    learning_rate: Dimension | None = None
    """AdamW step size; default: trainer.learning_rate."""

    @field_validator("penalty", "controller")
    @classmethod
    def _known(cls, dimension: Dimension, info: ValidationInfo) -> Dimension:
        allowed = [member.value for member in _ENUMS[str(info.field_name)]]
        if not dimension.values():
            raise ValueError(f"must be a choice among: {', '.join(allowed)}")
        problems = [
            f"unknown value (got {value!r}; allowed: {', '.join(allowed)})"
            for value in dimension.values()
            if value not in allowed
        ]
        if problems:
            raise FieldProblems(*(("", problem) for problem in problems))
        return dimension

    @field_validator("beta", *POSITIVE)
    @classmethod
    def _numbers_in_range(cls, dimension: Dimension | None, info: ValidationInfo) -> Any:
        if dimension is None:
            return None
        wrong = [v for v in dimension.values() if not _is_number(v)]
        if wrong:
            raise ValueError(f"must be a number (got {wrong[0]!r})")
        smallest = min(dimension.numbers())
        if dimension.log is not None and smallest <= 0:
            raise FieldProblems(("log", _not_above_0(dimension.log, str(info.field_name))))
        if info.field_name == "beta" and smallest < 0:
            raise ValueError(f"must not be below 0 (got {smallest!r})")
        if info.field_name != "beta" and smallest <= 0:
            raise ValueError(f"must be above 0 (got {smallest!r})")
        return dimension

    @model_validator(mode="after")
    def _meaningful(self) -> Self:
        problems = [
            *_zero_problems(self),
            *_condition_problems(self),
            *_controller_problems(self),
        ]
        if problems:
            raise FieldProblems(*problems)
        return self

    def dimensions(self) -> dict[str, Dimension]:
        """The given dimensions by name, conditions' parents first."""
        named = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: dim for name, dim in named.items() if dim is not None}


def _not_above_0(bounds: tuple[float, float], name: str) -> str:
    # Only beta has an arm at 0 (`_zero_problems`).
    advice = "; for a beta = 0 arm write `zero: true` beside a range above 0"
    return f"both bounds must be above 0 (got {list(bounds)}){advice if name == 'beta' else ''}"


_ENUMS: dict[str, type[Penalty] | type[ControllerKind]] = {
    "penalty": Penalty,
    "controller": ControllerKind,
}


def _zero_problems(search: SearchSpec) -> list[tuple[str, str]]:
    return [
        (f"{name}.zero", "only beta has a zero arm")
        for name, dimension in search.dimensions().items()
        if dimension.zero and name != "beta"
    ]


def _condition_problems(search: SearchSpec) -> list[tuple[str, str]]:
    problems: list[tuple[str, str]] = []
    dimensions = search.dimensions()
    problems += [
        (f"{name}.when", f"every trial needs {name}, so it takes no condition: remove it")
        for name in ("beta", "penalty")
        if dimensions[name].when
    ]
    for name, dimension in dimensions.items():
        for parent, wanted in dimension.when.items():
            path = f"{name}.when"
            if parent not in dimensions or parent == name:
                others = ", ".join(other for other in dimensions if other != name)
                problems.append(
                    (path, f"{parent!r} is not another searched parameter ({others or 'none'})")
                )
            elif wanted not in dimensions[parent].values():
                values = ", ".join(map(repr, dimensions[parent].values())) or "a range"
                problems.append((path, f"{parent} never is {wanted!r} (it can be {values})"))
    try:
        parents = {name: set(dim.when) - {name} for name, dim in dimensions.items()}
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        problems.append((f"{circle[0]}.when", f"conditions go round: {' > '.join(circle)}"))
    return problems


def _controller_problems(search: SearchSpec) -> list[tuple[str, str]]:
    """Horizon belongs to the proportional controller; what a target needs is checked with ``control``."""
    problems: list[tuple[str, str]] = []
    kinds = [ControllerKind(str(value)) for value in search.controller.values()]
    proportional = ControllerKind.PROPORTIONAL
    if proportional not in kinds and search.horizon is not None:
        problems.append(
            ("horizon", "has no effect, since controller is never proportional: remove it")
        )
    if proportional in kinds:
        if search.horizon is None:
            problems.append(("horizon", "needed, since controller can be proportional"))
        elif search.horizon.when not in ({}, {"controller": proportional.value}):
            problems.append(
                (
                    "horizon.when",
                    "can only be {controller: proportional}: every proportional trial needs it "
                    f"(got {search.horizon.when})",
                )
            )
    steering = [kind.value for kind in kinds if kind.has_target]
    if steering and search.beta.smallest() == 0:
        problems.append(
            (
                "controller",
                f"{steering[0]} multiplies beta, so it can't leave beta = 0; start beta above 0 and "
                "write `zero: true` for the beta = 0 arm (got a beta that can be 0)",
            )
        )
    return problems


def biased_problems(search: SearchSpec) -> list[tuple[str, str]]:
    """Penalties that need ``allow_biased``, with the reason."""
    sound = ", ".join(p.value for p in Penalty if p.nature.refusal is None)
    return [
        (
            "search.penalty",
            f"{refusal} (got {value!r}; sound: {sound}; to study it all the same: allow_biased: true)",
        )
        for value in search.penalty.values()
        if (refusal := Penalty(str(value)).nature.refusal) is not None
    ]
