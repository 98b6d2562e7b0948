"""What the other trainer will run in, given by flags; what is not given is as in the study."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from kltune.errors import SpecError
from kltune.export.releases import KeyList, Version, key_list, number_of
from kltune.export.setting import Winner
from kltune.trial.words import number

_WITHOUT_GROUP: Final = ("ppo", "reinforce")
"""Algorithms whose advantages compare nothing within a group."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Flags of the export; None: as in the study."""

    batch: int | None = None
    """Completions per step."""
    group: int | None = None
    """Completions per prompt."""
    mean_tokens: float | None = None
    """Mean completion length."""
    max_new_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The framework and its sizes."""

    framework: str
    version: str
    keys: KeyList
    batch: int
    """Completions per step."""
    group: int
    """Completions per prompt."""
    mean_tokens: float
    """Mean completion length."""
    max_new_tokens: int
    given: Sizes
    warnings: tuple[str, ...] = ()

    @property
    def number(self) -> Version:
        """Of the version, for comparison."""
        return number_of(self.version)

    @property
    def prompts(self) -> int:
        """Prompts per step."""
        return self.batch // self.group

    @property
    def is_studied(self) -> bool:
        """Whether nothing is said to differ from the study: steps and learning rate then mean the same."""
        return self.given == Sizes()

    def whose(self, name: str) -> str:
        """Who says a size: the flag or the study."""
        flag = "--" + name.replace("_", "-")
        return f"the study's own; {flag} sets yours" if getattr(self.given, name) is None else flag


def make_target(winner: Winner, framework: str, version: str | None, given: Sizes) -> Target:
    """Fill in what the flags leave open from the study.

    Raises:
        SpecError: sizes that don't fit together, or an unknown release.
    """
    keys, doubt = key_list(framework, version)
    trainer = winner.trainer
    group = trainer.group_size if given.group is None else given.group
    batch = trainer.rows if given.batch is None else given.batch
    longest = trainer.max_new_tokens if given.max_new_tokens is None else given.max_new_tokens
    mean = winner.measured.mean_tokens if given.mean_tokens is None else given.mean_tokens
    _check(batch, group, mean, longest, trainer.algorithm)
    warnings = [doubt] if doubt else []
    if given.max_new_tokens is not None and given.mean_tokens is None:
        warnings.append(
            f"--max-new-tokens without --mean-tokens: nats per sequence are taken at the study's own mean length, "
            f"{number(mean)} tokens"
        )
    return Target(
        framework=framework,
        version=version.strip().removeprefix("v") if version else keys.version,
        keys=keys,
        batch=batch,
        group=group,
        mean_tokens=mean,
        max_new_tokens=longest,
        given=given,
        warnings=tuple(warnings),
    )


def _check(batch: int, group: int, mean: float, longest: int, algorithm: str) -> None:
    problems: list[str] = []
    fewest = 1 if algorithm in _WITHOUT_GROUP else 2
    if group < fewest:
        problems.append(f"--group: at least {fewest} completions per prompt (got {group})")
    elif batch % group:
        problems.append(f"--batch: {batch} completions are no multiple of the group of {group}")
    if not (math.isfinite(mean) and mean > 0):
        problems.append(f"--mean-tokens: must be a number above 0 (got {mean:g})")
    elif mean > longest:
        problems.append(
            f"--mean-tokens: {mean:g} is above the limit of {longest} tokens (--max-new-tokens)"
        )
    if problems:
        raise SpecError("; ".join(problems))
