"""What all trials of a bank share: the algorithm and everything that changes shapes."""

from __future__ import annotations

import re
from typing import Any, Literal, Self, TypeGuard, cast

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from kltune.spec.closed import Closed, FieldProblems


class TrainerSpec(Closed):
    """Shapes and algorithm of one step: prompts x group_size completions, one update."""

    algorithm: Literal["grpo"] = "grpo"
    """Policy-gradient algorithm: GRPO with group mean and group std (n - 1)."""

    steps: PositiveInt = Field(le=10_000_000)
    """Steps of a full trial."""

    prompts: PositiveInt = 8
    """Prompts per step."""

    group_size: int = Field(default=8, ge=2)
    """Completions per prompt; at least 2, since the advantage compares within the group."""

    completions: PositiveInt | None = None
    """Completions per step, instead of ``prompts``; must be a multiple of group_size."""

    max_new_tokens: PositiveInt = 32
    """Length limit of a completion in tokens."""

    max_prompt_tokens: PositiveInt | None = None
    """Prompts longer than this are refused before the start; none: the model's own limit."""

    temperature: PositiveFloat = 1.0
    """One temperature for sampling and for policy and reference log-probs."""

    learning_rate: PositiveFloat = 1e-3
    """AdamW step size where the search does not set one."""

    max_grad_norm: PositiveFloat = 1.0
    """Gradient norm clip, per slot."""

    weight_decay: NonNegativeFloat = 0.0
    """Decoupled AdamW weight decay."""

    clip_ratio: PositiveFloat = 0.2
    """Two-sided clip of the importance ratio."""

    micro_batch: PositiveInt | None = None
    """Rows per slot in one backward pass; none: found automatically. Must divide the batch."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the forward passes; log-softmax, adapters' moments and reductions stay fp32."""

    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", device) is None:
            raise ValueError(f"must be auto, cpu, cuda or cuda:N (got {device!r})")
        return device

    @model_validator(mode="before")
    @classmethod
    def _completions_to_prompts(cls, data: Any) -> Any:
        if not isinstance(data, dict) or cast("dict[str, Any]", data).get("completions") is None:
            return data
        given = cast("dict[str, Any]", data)
        completions, group = given["completions"], given.get("group_size", 8)
        if not (_is_count(completions) and _is_count(group) and group >= 2):
            return given  # the fields' own checks say what is wrong
        # A resolved spec holds both, and they agree.
        if given.get("prompts", completions / group) != completions / group:
            raise FieldProblems(("completions", "give prompts or completions, not both"))
        if completions % group:
            allowed = [g for g in range(2, completions + 1) if completions % g == 0]
            problem = (
                f"{completions} is not a multiple of group_size {group}; "
                f"group sizes that divide it: {', '.join(map(str, allowed)) or 'none'}"
            )
            raise FieldProblems(("completions", problem))
        return {**given, "prompts": completions // group}

    @model_validator(mode="after")
    def _micro_batch_divides(self) -> Self:
        rows = self.rows
        if self.micro_batch is not None and rows % self.micro_batch:
            allowed = [m for m in range(1, rows + 1) if rows % m == 0]
            problem = (
                f"{self.micro_batch} does not divide the {rows} completions per step; "
                f"allowed: {', '.join(map(str, allowed))}"
            )
            raise FieldProblems(("micro_batch", problem))
        return self

    @property
    def rows(self) -> int:
        """Completions per step of one slot (N)."""
        return self.prompts * self.group_size


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
