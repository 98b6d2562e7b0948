"""A baseline in the spec, by a recipe's name or written out, in; its setting in the units that it was given in, out.

A written baseline with ``beta_in: advantage`` stands beside the advantages of the study's own algorithm,
divided as that algorithm divides them; a recipe by name stands beside group-normalised ones (spec/recipes.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    Discriminator,
    NonNegativeFloat,
    PositiveFloat,
    Tag,
    field_validator,
    model_validator,
)

from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.penalty import Penalty
from kltune.spec.recipes import RECIPES, Recipe, unknown_words
from kltune.spec.trial import CONTROLLER_CLIP, ControllerKind

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")

MOST_BETA: Final = {"advantage": 1e3, "reward": 1e6}
"""Largest beta by the unit that it is in: beyond, a thousandth of a nat outweighs any advantage or reward."""

_FROM_CONTROL: Final = (ControllerKind.SCHEDULE, ControllerKind.THRESHOLD)
"""Kinds whose numbers stand in the section ``control``, which is the search's."""


class BaselineSpec(Closed):
    """A setting that is run as a baseline, such as the one in use today."""

    name: str
    """Shown in reports as ``baseline:NAME``."""

    penalty: Penalty | None = None
    """Estimator and placement; none only where beta is 0."""

    beta: NonNegativeFloat
    """KL coefficient, in the unit that ``beta_in`` names."""

    beta_in: Literal["advantage", "reward"]
    """advantage: factor of the KL beside the algorithm's own advantages; reward: raw proxy reward per
    nat of sequence KL."""

    controller: ControllerKind = ControllerKind.FIXED
    """How beta moves."""

    target_kl_seq: PositiveFloat | None = None
    """Set point of the controller, nats per sequence."""

    target_kl_token: PositiveFloat | None = None
    """The same in nats per token; one of the two."""

    horizon: PositiveFloat | None = None
    """Time constant of the proportional controller, in sequences."""

    @model_validator(mode="before")
    @classmethod
    def _says_whose_nats(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "target_kl" in values:
            text = "say whose nats: target_kl_seq (per sequence) or target_kl_token (per token)"
            raise FieldProblems(("target_kl", text))
        return values  # pyright: ignore[reportUnknownVariableType]

    @field_validator("name")
    @classmethod
    def _is_safe(cls, name: str) -> str:
        if _NAME.fullmatch(name) is None:
            raise ValueError(
                "must be up to 60 letters, digits, dots, dashes or underscores, a letter or digit first "
                f"(got {name!r})"
            )
        if name in RECIPES:
            raise ValueError(f"{name} is a known recipe's name: give another one")
        return name

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._penalty_problems(), *self._controller_problems()]
        if problems:
            raise FieldProblems(*problems)
        return self

    @property
    def steers(self) -> bool:
        """Whether a controller moves beta towards a KL."""
        return self.controller.has_target

    def _penalty_problems(self) -> list[tuple[str, str]]:
        most = MOST_BETA[self.beta_in]
        if self.beta > most:
            text = f"must be at most {most:g} with beta_in {self.beta_in} (got {self.beta:g})"
            return [("beta", text)]
        if self.beta > 0 and self.penalty is None:
            return [("penalty", "needed where beta is above 0")]
        if self.beta == 0 and self.penalty is not None:
            return [("penalty", f"beta is 0, so {self.penalty} has no effect: remove it")]
        return []

    def _controller_problems(self) -> list[tuple[str, str]]:
        kind, problems = self.controller, list[tuple[str, str]]()
        targets = [t for t in (self.target_kl_seq, self.target_kl_token) if t is not None]
        if kind in _FROM_CONTROL:
            text = f"{kind.value} takes its numbers from `control`, which is the search's"
            return [("controller", f"{text}: use fixed, proportional or a named rule")]
        if kind.has_target and self.beta == 0:
            text = f"{kind.value} multiplies beta, so it can't leave beta = 0"
            problems.append(("controller", text))
        if len(targets) == 2:
            text = "give it in nats per sequence or per token (target_kl_token), not both"
            problems.append(("target_kl_seq", text))
        if kind.has_target and not targets:
            text = f"needed by {kind.value} (or target_kl_token)"
            problems.append(("target_kl_seq", text))
        if targets and not kind.has_target:
            name = "target_kl_seq" if self.target_kl_seq is not None else "target_kl_token"
            problems.append((name, f"has no effect with controller {kind.value}: remove it"))
        if (kind is ControllerKind.PROPORTIONAL) != (self.horizon is not None):
            text = "needed by" if self.horizon is None else "has no effect with"
            problems.append(("horizon", f"{text} controller {kind.value}"))
        return problems


def _kind(value: Any) -> str:
    return "<recipe>" if isinstance(value, str) else "<written>"


# A tag names the branch that is meant, so that mistakes in it are reported once, not per branch.
Baseline = Annotated[
    Annotated[str, Tag("<recipe>")] | Annotated[BaselineSpec, Tag("<written>")],
    Discriminator(_kind),
]


def known(baselines: Sequence[str | BaselineSpec]) -> None:
    """Every name must be a recipe's, and each stand once.

    Raises:
        ValueError: one is unknown or there twice.
    """
    unknown = [one for one in baselines if isinstance(one, str) and one not in RECIPES]
    if unknown:
        raise ValueError(
            f"{unknown_words(unknown[0])}; a setting of your own is written out: "
            "{name, penalty, beta, beta_in, ...}"
        )
    first: dict[str, int] = {}
    for place, name in enumerate(setting(one).name for one in baselines):
        if name in first:
            raise FieldProblems(
                (f"{place}", f"is called {name} like baselines.{first[name]}: each name once")
            )
        first[name] = place


def setting(baseline: str | BaselineSpec) -> Recipe | BaselineSpec:
    """What a line of ``baselines`` stands for; a name must be known."""
    return RECIPES[baseline] if isinstance(baseline, str) else baseline


def repeats(baselines: Sequence[str | BaselineSpec]) -> list[tuple[str, str]]:
    """Recipes that are one setting under two names: the second trial would be the first one again."""
    found: list[tuple[str, str]] = []
    first: dict[tuple[object, ...], str] = {}
    for place, name in enumerate(baselines):
        if not isinstance(name, str):
            continue
        other = first.setdefault(RECIPES[name].setting, name)
        if other != name:
            text = f"{name} is the setting of {other} under another name, so its trial repeats that one"
            found.append((f"baselines.{place}", text))
    return found


def baseline_problems(
    baselines: Sequence[str | BaselineSpec], rows: int, *, allow_biased: bool
) -> list[tuple[str, str]]:
    """What a written baseline may not be in this study; ``rows``: completions per step."""
    problems: list[tuple[str, str]] = []
    for place, one in enumerate(baselines):
        if isinstance(one, str):
            continue
        refusal = None if one.penalty is None else one.penalty.nature.refusal
        if refusal is not None and not allow_biased:
            text = f"{refusal}; allow_biased: true admits it, to study it"
            problems.append((f"baselines.{place}.penalty", text))
        shortest = CONTROLLER_CLIP * rows
        if one.horizon is not None and one.horizon <= shortest:
            problems.append(
                (
                    f"baselines.{place}.horizon",
                    f"must be above {shortest:g} sequences ({CONTROLLER_CLIP:g} x {rows} completions per step): "
                    f"below it, one step at KL 0 takes beta to 0 or under (got {one.horizon:g})",
                )
            )
    return problems
