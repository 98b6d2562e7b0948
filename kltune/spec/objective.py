"""What a trial is worth: the objective's metric, and the limits that a checkpoint must respect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from kltune.spec.closed import Closed


class GoldLimit(Closed):
    """What a gold beside the objective's is there for; without a limit it is only looked at.

    Broken where the mean over the select prompts is beyond the limit: the mean alone decides,
    without a margin for its noise. The report says where the prompts can't tell.
    """

    min: float | None = None
    """A checkpoint is not chosen where this gold's mean is below; in this gold's unit."""

    max_drop: PositiveFloat | None = None
    """A checkpoint is not chosen where this gold's mean is further below its mean at step 0; in its unit."""

    @model_validator(mode="after")
    def _is_one_limit(self) -> Self:
        if self.min is not None and self.max_drop is not None:
            raise ValueError(
                f"give min or max_drop, not both (got min {self.min:g} and max_drop {self.max_drop:g})"
            )
        return self

    @property
    def is_limit(self) -> bool:
        """Whether it forbids any checkpoint."""
        return self.min is not None or self.max_drop is not None


class ObjectiveSpec(Closed):
    """The number that a trial is worth (design.md §3)."""

    metric: Literal["gold_peak", "gold_final", "gold_mean"] = "gold_peak"
    """Gold at the best checkpoint that respects the limits; mean of the last two evaluations; or mean over
    the budget."""

    kl_limit: PositiveFloat | None = None
    """Constraint on the KL of a checkpoint, in ``kl_unit``; none: unconstrained."""

    also: dict[str, GoldLimit] = Field(default_factory=dict[str, GoldLimit])
    """Limits on the golds of ``task.golds``, by name; one that is not here is only looked at."""

    @property
    def gold_limits(self) -> dict[str, GoldLimit]:
        """Those of ``also`` that forbid something."""
        return {name: limit for name, limit in self.also.items() if limit.is_limit}


def unknown_golds(objective: ObjectiveSpec, golds: Iterable[str]) -> list[tuple[str, str]]:
    """The names in ``also`` that are no golds of the task, as pairs of field and sentence."""
    known = sorted(golds)
    listed = f"it has {', '.join(known)}" if known else "it names none in task.golds"
    return [
        (
            f"objective.also.{name}",
            f"the task has no gold {name!r} beside the objective's; {listed}",
        )
        for name in objective.also
        if name not in known
    ]
