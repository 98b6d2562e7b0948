"""What is learned: a built-in task by name, or prompts, proxy and gold of the user."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, PositiveFloat, Tag, field_validator

from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.duration import seconds
from kltune.spec.golds import name_problem
from kltune.spec.prompts import Prompts, SplitsSpec
from kltune.spec.scorers import ErrorsSpec, Gold, LearnedProxySpec, Proxy, ProxySpec

Seconds = Annotated[PositiveFloat, BeforeValidator(seconds)]
"""A duration: ``90``, ``90s``, ``15m``."""

__all__ = (
    "BuiltinTask",
    "LearnedProxySpec",
    "ProxySpec",
    "SplitsSpec",
    "Task",
    "TaskSpec",
)


class TaskSpec(Closed):
    """A task of the user."""

    prompts: Prompts
    """A file (.jsonl, .json, .csv, .tsv, .parquet, .txt, a folder of `datasets`): column ``prompt``, optional ``split``,
    other columns go to the scorers. Or ``{path: or dataset:, prompt:, columns:, ...}``."""

    proxy: Proxy
    """Training reward: ``package.module:function``, ``file.py:function``, ``{weighted: [...]}``, ``{learned: ...}``,
    or a reward of kltune.spec.rewards."""

    gold: Gold
    """Held-out judgement: the same, but not learned. Never the proxy."""

    golds: dict[str, Gold] = Field(default_factory=dict[str, Gold])
    """Further judgements by name, like ``gold``: looked at, and limited by ``objective.also``."""

    splits: SplitsSpec = SplitsSpec()

    timeout: Seconds = 600.0
    """Longest time of one call of a function, which scores all completions of a step: the trial fails beyond it."""

    isolate: bool = False
    """Call functions in a child process, which can be ended whatever they do: crash, or hang outside Python."""

    errors: ErrorsSpec = ErrorsSpec()
    """What becomes of completions on which the proxy fails."""

    @field_validator("golds")
    @classmethod
    def _are_named(cls, golds: dict[str, Gold]) -> dict[str, Gold]:
        problems = [(name, problem) for name in golds if (problem := name_problem(name))]
        if problems:
            raise FieldProblems(*problems)
        return golds


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
