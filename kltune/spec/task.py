"""What is learned: a built-in task by name, or prompts, proxy and gold of the user."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    field_validator,
)

from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.golds import name_problem


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


class SplitsSpec(Closed):
    """How prompts are divided where the file has no ``split`` column: shares of the prompts."""

    train: PositiveFloat = 0.5
    select: PositiveFloat = 0.25
    test: PositiveFloat = 0.25
    seed: int = 0


def _proxy_kind(value: Any) -> str:
    return "<function>" if isinstance(value, str) else "<learned>"


# A tag names the branch that is meant, so that mistakes in it are reported once, not per branch.
Proxy = Annotated[
    Annotated[str, Tag("<function>")] | Annotated[ProxySpec, Tag("<learned>")],
    Discriminator(_proxy_kind),
]

_FUNCTION = re.compile(r"(?:.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")


class TaskSpec(Closed):
    """A task of the user."""

    prompts: str
    """A .jsonl file (field ``prompt``, optional ``split``, other columns go to the scorers) or a .txt file
    (one prompt a line)."""

    proxy: Proxy
    """Training reward: ``package.module:function``, ``file.py:function`` or ``{learned: ...}``."""

    gold: str
    """Held-out judgement: ``package.module:function`` or ``file.py:function``. Never the proxy."""

    golds: dict[str, str] = Field(default_factory=dict[str, str])
    """Further judgements by name, functions like ``gold``: looked at, and limited by ``objective.also``."""

    splits: SplitsSpec = SplitsSpec()

    @field_validator("gold", "proxy")
    @classmethod
    def _is_a_function(cls, value: Any) -> Any:
        if isinstance(value, str) and _FUNCTION.fullmatch(value) is None:
            raise ValueError(_no_function(value))
        return value

    @field_validator("golds")
    @classmethod
    def _are_named_functions(cls, golds: dict[str, str]) -> dict[str, str]:
        problems = [
            (name, problem or _no_function(function))
            for name, function in golds.items()
            if (problem := name_problem(name)) or _FUNCTION.fullmatch(function) is None
        ]
        if problems:
            raise FieldProblems(*problems)
        return golds


def _no_function(value: str) -> str:
    return f"must look like package.module:function or file.py:function (got {value!r})"


class BuiltinTask(Closed):
    """A task that ships with kltune."""

    builtin: str
    """Its name, e.g. kitchen."""

    proxy: ProxySpec | None = None
    """Replace the shipped proxy by one learned anew."""

    golds: tuple[str, ...] = ()
    """Further judgements that the task ships, by name: looked at, and limited by ``objective.also``."""

    @field_validator("golds")
    @classmethod
    def _are_names(cls, golds: tuple[str, ...]) -> tuple[str, ...]:
        problem = next((p for name in golds if (p := name_problem(name))), None)
        if problem is not None:
            raise ValueError(problem)
        if len(set(golds)) != len(golds):
            raise ValueError(f"each gold once (got {list(golds)})")
        return golds


def _task_kind(value: Any) -> str:
    is_builtin = isinstance(value, BuiltinTask) or (isinstance(value, dict) and "builtin" in value)
    return "<builtin>" if is_builtin else "<own>"


Task = Annotated[
    Annotated[BuiltinTask, Tag("<builtin>")] | Annotated[TaskSpec, Tag("<own>")],
    Discriminator(_task_kind),
]
