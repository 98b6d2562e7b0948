"""How a spec names what scores: a function, weighted parts, a learned proxy, or a reward of `kltune.spec.rewards`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    field_validator,
    model_validator,
)

from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.golds import GOLD_NAME
from kltune.spec.rewards import REWARD_KEYS, RewardSpec, reward_kind

FUNCTION: Final = re.compile(r"(?:.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")


class LearnedProxySpec(Closed):
    """A reward model trained from pairwise comparisons of the reference's own completions."""

    source: Literal["gold"] = Field(default="gold", alias="from")
    """Who labels the comparisons: the task's gold, on train prompts."""

    comparisons: PositiveInt = 1500
    """Pairs drawn; pairs that gold can't tell apart are dropped."""

    label_noise: float = Field(default=0.15, ge=0, lt=0.5)
    """Share of labels that are flipped."""

    layers: PositiveInt | None = None
    """Use only the first layers of the base as the reward model's trunk; none: all."""

    steps: PositiveInt = 200
    """Optimiser steps of the reward model."""

    batch: PositiveInt = 32
    """Comparisons per optimiser step of the reward model."""

    learning_rate: PositiveFloat = 3e-4
    """Step size of the reward model."""


class ProxySpec(Closed):
    """A proxy that kltune makes itself."""

    learned: LearnedProxySpec


class FunctionSpec(Closed):
    """A function whose calling convention is said, where its arguments' names don't tell."""

    function: str
    """``package.module:function`` or ``file.py:function``."""

    style: Literal["auto", "trl", "verl"] = "auto"
    """``trl``: f(prompts, completions, **columns) -> list; ``verl``: compute_score(data_source, solution_str,
    ground_truth, extra_info) -> number, once a completion; ``auto``: by the names of its arguments."""

    @field_validator("function")
    @classmethod
    def _is_a_function(cls, value: str) -> str:
        problem = function_problem(value)
        if problem is not None:
            raise ValueError(problem)
        return value


def function_problem(value: str) -> str | None:
    """Say why ``value`` names no function; none where it does."""
    if FUNCTION.fullmatch(value) is not None:
        return None
    return f"must look like package.module:function or file.py:function (got {value!r})"


def function_of(value: str | FunctionSpec) -> FunctionSpec:
    """The function that a spec names, in its long form."""
    return value if isinstance(value, FunctionSpec) else FunctionSpec(function=value)


def _tag(value: Any) -> str:
    if isinstance(value, str):
        return "<function>"
    by_class = {FunctionSpec: "function", ProxySpec: "learned"}
    own = next((key for kind, key in by_class.items() if isinstance(value, kind)), None)
    if own is None and isinstance(value, dict):
        own = next((key for key in ("function", "weighted", "learned") if key in value), None)
    if own is None and hasattr(value, "weighted"):
        own = "weighted"
    return "<reward>" if own is None else f"<{own} section>"


def _known(keys: tuple[str, ...]) -> Any:
    def check(value: Any) -> Any:
        if not isinstance(value, str | dict | Closed):
            raise ValueError(
                "must be package.module:function, file.py:function, or a section with one of "
                f"{', '.join(keys)} (got {value!r})"
            )
        if isinstance(value, dict):
            given = [str(key) for key in cast("Mapping[object, object]", value)]
            if not any(key in keys for key in given):
                raise ValueError(
                    f"must have one of the keys {', '.join(keys)} (it has {', '.join(given) or 'none'})"
                )
        return cast("object", value)

    return BeforeValidator(check)


def _function_text(value: Any) -> Any:
    problem = function_problem(value) if isinstance(value, str) else None
    if problem is not None:
        raise ValueError(problem)
    return value


_PLAIN = Annotated[str, BeforeValidator(_function_text)]
_OTHER = Annotated[RewardSpec, Tag("<reward>")]
# A tag names the branch that is meant, so that mistakes in it are reported once, not per branch.
PartReward = Annotated[
    Annotated[_PLAIN, Tag("<function>")]
    | Annotated[FunctionSpec, Tag("<function section>")]
    | _OTHER,
    Discriminator(_tag),
    _known(("function", *REWARD_KEYS)),
]
"""What can be one of several."""


class WeightedPart(Closed):
    """One of several scores that are added up; its own keys may stand beside ``weight``."""

    reward: PartReward
    """What scores."""

    weight: float = 1.0
    """Its score counts so many times; below 0: as a cost."""

    name: str | None = None
    """What its metric is called (``train/part_<name>``); none: by its function or kind."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        """``{function: f, weight: 2}`` means ``{reward: {function: f}, weight: 2}``."""
        if not isinstance(value, dict) or "reward" in value:
            return {"reward": value} if isinstance(value, str) else value
        given = cast("dict[str, Any]", value)
        own = {key: given[key] for key in ("weight", "name") if key in given}
        return {**own, "reward": {k: v for k, v in given.items() if k not in own}}

    @property
    def called(self) -> str:
        """Name of the part in metrics and reports."""
        if self.name is not None:
            return self.name
        if isinstance(self.reward, str | FunctionSpec):
            found = function_of(self.reward).function.rpartition(":")[2].lower().strip("_")
            return found[:40] or "part"
        return (reward_kind(self.reward) or "<part>").strip("<>")


class WeightedSpec(Closed):
    """The weighted sum of several scores; one that can't score a completion adds nothing to it."""

    weighted: tuple[WeightedPart, ...]

    @model_validator(mode="after")
    def _has_names_and_weights(self) -> Self:
        problems: list[tuple[str, str]] = []
        seen: dict[str, int] = {}
        for number, part in enumerate(self.weighted):
            name, field = part.called, f"weighted.{number}.name"
            first = seen.setdefault(name, number)
            if first != number:
                problems.append(
                    (field, f"{name!r} is part {first} too; give each part its own name")
                )
            elif GOLD_NAME.fullmatch(name) is None:
                text = (
                    "must be up to 40 lowercase letters, digits, dashes or underscores, a letter first "
                    f"(got {name!r})"
                )
                problems.append((field, text))
        if not any(part.weight for part in self.weighted):
            problems.append(("weighted", "needs a part with a weight that is not 0"))
        if problems:
            raise FieldProblems(*problems)
        return self


class ErrorsSpec(Closed):
    """What becomes of completions on which the proxy raises or returns no number. Gold must always score."""

    action: Literal["fail", "skip"] = "fail"
    """``fail``: the trial fails at the first one. ``skip``: they count as unscored and are recorded."""

    share: float = Field(default=0.1, gt=0, le=1)
    """With ``skip``: the trial fails where more than this share of the completions of one call, and more than one,
    can't be scored for errors."""


def part_names(reward: object) -> tuple[str, ...]:
    """What the parts of a weighted reward are called, in order; none of any other."""
    return (
        tuple(part.called for part in reward.weighted) if isinstance(reward, WeightedSpec) else ()
    )


def functions_of(reward: object) -> tuple[FunctionSpec, ...]:
    """Every function that a reward calls: itself, or its parts."""
    if isinstance(reward, str | FunctionSpec):
        return (function_of(reward),)
    if isinstance(reward, WeightedSpec):
        return tuple(f for part in reward.weighted for f in functions_of(part.reward))
    return ()


Gold = Annotated[
    Annotated[_PLAIN, Tag("<function>")]
    | Annotated[FunctionSpec, Tag("<function section>")]
    | Annotated[WeightedSpec, Tag("<weighted section>")]
    | _OTHER,
    Discriminator(_tag),
    _known(("function", "weighted", *REWARD_KEYS)),
]
"""A judgement."""
Proxy = Annotated[
    Annotated[_PLAIN, Tag("<function>")]
    | Annotated[FunctionSpec, Tag("<function section>")]
    | Annotated[WeightedSpec, Tag("<weighted section>")]
    | Annotated[ProxySpec, Tag("<learned section>")]
    | _OTHER,
    Discriminator(_tag),
    _known(("function", "weighted", "learned", *REWARD_KEYS)),
]
"""A training reward."""
