"""One key of a target's configuration, and all of them: what an export is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kltune.errors import SpecError
from kltune.export.releases import KeyList

_NOISE: Final = 5e-9
"""Relative."""

Value = bool | int | float | str | tuple[float, ...] | tuple[str, ...] | Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Key:
    """A key, its value, and where the value comes from."""

    name: str
    """As the framework's own list has it, without the class of TRL."""
    value: Value
    comment: str
    is_set: bool = True
    """False: written as a comment alone, since it can't be carried over as it is."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A setting in a framework's words."""

    framework: str
    version: str
    keys: tuple[Key, ...]
    warnings: tuple[str, ...]
    """What differs from what was studied, and what can't be carried over."""
    text: str = ""
    """The file."""
    builder: str = ""
    """TRL's class; empty elsewhere."""
    is_converted: bool = False
    """Of another trainer's configuration: there is no study that it could differ from."""

    @property
    def values(self) -> Mapping[str, Any]:
        """The keys that are set."""
        return {key.name: key.value for key in self.keys if key.is_set}

    def with_text(self, text: str) -> Exported:
        """The same with its file."""
        return replace(self, text=text)


def check_known(keys: tuple[Key, ...], listed: KeyList, prefix: str = "") -> None:
    """Every key must be one that the release has.

    Raises:
        SpecError: one is not: the release can't be told this setting.
    """
    missing = [key.name for key in keys if key.is_set and f"{prefix}{key.name}" not in listed]
    if missing:
        raise SpecError(
            f"--to {listed.framework}: {prefix}{missing[0]} is needed and {listed.framework} {listed.version} does "
            "not have it; use a newer --version"
        )


def rounded(value: float) -> float:
    """The shortest number that nine significant digits can't tell from it: no noise of a product, no loss that matters.

    What was rounded before is off by up to half a unit of its ninth digit, 5e-9 of it, and comes back to itself.
    """
    for digits in range(1, 9):
        found = float(f"{value:.{digits}g}")
        if abs(found - value) <= _NOISE * abs(value):
            return found
    return float(f"{value:.9g}")
