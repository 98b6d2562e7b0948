"""A recipe's name, or none, in; published KL settings out, those of one setting together, priced in raw reward.

The settings themselves: kltune/spec/recipes.py; conversions: kltune/units.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kltune import units
from kltune.errors import SpecError
from kltune.explain.flags import above_zero
from kltune.spec.recipes import RECIPES, WITHOUT_KL, Recipe, unknown_words
from kltune.spec.trial import BetaUnit


@dataclass(frozen=True, slots=True)
class RecipesQuestion:
    """Which recipes, and beside which reward and answers."""

    name: str | None = None
    """None: all."""
    sigma_r: float = 0.5
    """Standard deviation of the reward within a group."""
    tokens: float = 40
    """Mean tokens of an answer."""


@dataclass(frozen=True, slots=True)
class Named:
    """One name of a setting."""

    name: str
    source: str
    note: str
    is_published: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting and everything that it is called."""

    beta: float
    beta_in: str
    """``reward``: raw reward per nat of sequence KL; ``advantage``: beside advantages over the group's spread."""
    penalty: str
    gradient: str
    controller: str
    target_kl_seq: float | None
    target_kl_token: float | None
    """At the question's tokens of an answer."""
    horizon: float | None
    beta_reward: float
    """Raw reward per nat of sequence KL at the question's spread."""
    named: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class RecipesFacts:
    """What the screen shows."""

    sigma_r: float
    tokens: float
    settings: tuple[Setting, ...]
    """By unit and penalty, the dearest first; one where a name was asked for."""
    without_kl: tuple[tuple[str, str], ...]
    """Published settings that are the arm beta = 0, and where they come from."""
    asked: str | None = None


def explain_recipes(question: RecipesQuestion) -> RecipesFacts:
    """Group what there is, or find the one that is asked for.

    Raises:
        SpecError: no such recipe (the nearest are named), or a number that can't be.
    """
    sigma_r = above_zero("--sigma-r", question.sigma_r)
    tokens = above_zero("--tokens", question.tokens)
    if question.name is not None and question.name not in RECIPES:
        raise SpecError(f"NAME: {unknown_words(question.name)}")
    groups: dict[tuple[object, ...], list[Recipe]] = {}
    for recipe in RECIPES.values():
        groups.setdefault(recipe.setting, []).append(recipe)
    if question.name is not None:
        groups = {RECIPES[question.name].setting: groups[RECIPES[question.name].setting]}
    settings = [_setting(group, sigma_r, tokens) for group in groups.values()]
    settings.sort(key=lambda s: (s.beta_in != "reward", s.penalty, -s.beta))
    without = () if question.name is not None else tuple(sorted(WITHOUT_KL.items()))
    return RecipesFacts(sigma_r, tokens, tuple(settings), without, question.name)


def _setting(group: Sequence[Recipe], sigma_r: float, tokens: float) -> Setting:
    first = group[0]
    is_raw = first.beta_in == "reward"
    target = first.target_kl_seq
    return Setting(
        beta=first.beta,
        beta_in=first.beta_in,
        penalty=first.penalty.value,
        gradient=first.penalty.nature.gradient,
        controller=first.controller.value,
        target_kl_seq=target,
        target_kl_token=None if target is None else units.kl_per_token(target, tokens),
        horizon=first.horizon,
        beta_reward=first.beta
        if is_raw
        else units.beta_of_coefficient(first.beta, BetaUnit.REWARD, sigma_r),
        named=tuple(Named(r.name, r.source, r.note, r.is_published) for r in group),
    )
