"""A file's keys and a release's list in; typed values out, with a record of which came from where."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from kltune.adopt.given import Given
from kltune.errors import SpecError
from kltune.export.releases import KeyList, Version, key_list, listed_versions, number_of

_REFERENCE: Final = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,([^}]*))?\}")

_COMPLETE: Final[Mapping[str, str]] = {
    "trl": r"(?!)",  # its classes inherit more than the lists have
    "verl": r"algorithm\.(?!rollout_correction|pf_ppo)[\w.]+|actor_rollout_ref\.actor\.\w+|critic\.\w+",
    "openrlhf": r"--.+",
    "nemo-rl": r"loss_fn\.[\w.]+|grpo\.\w+",
}
"""Sections of which the lists have every key: another one there is none of the release's."""


class Keys:
    """Looks keys up: in the file, else in the release's defaults, and keeps account of it."""

    def __init__(
        self, given: Given, listed: KeyList, prefix: str = "", version: str | None = None
    ) -> None:
        """``version``: that the file is for, where it is not the list's own."""
        self.given = given
        self.listed = listed
        self.version = version or listed.version
        self.warnings: list[str] = [*given.notes]
        self.sources: dict[str, str] = {}
        """Field of the trainer section, and the key that it came from."""
        self.defaults: dict[str, Any] = {}
        """Keys that the file leaves to the release."""
        self.unclear: dict[str, str] = {}
        """Field of the trainer section whose key is set in the file, but to what is not known: the key and its text."""
        self._prefix = prefix
        self._used: set[str] = set()

    @property
    def number_of_release(self) -> Version:
        """For comparison."""
        return number_of(self.version)

    def is_listed(self, key: str) -> bool:
        """Whether the release has the key."""
        return f"{self._prefix}{key}" in self.listed

    def is_given(self, key: str) -> bool:
        """Whether the file has it."""
        return key in self.given.values or key in self.given.unreadable

    def value(self, key: str, *, field: str = "", is_vital: bool = False) -> Any:
        """As the file has it, else the release's default, else None.

        ``field``: what of the trainer section it becomes. ``is_vital``: without it nothing can be said of the KL.

        Raises:
            SpecError: it is vital and no plain value.
        """
        self._used.add(key)
        found: Any = None
        words = ""
        if key in self.given.values:
            found, words = self._followed(self.given.values[key], key), key
        elif self.is_listed(key) and key not in self.given.unreadable:
            found = self._default(key)
            words = f"{key} (default of {self.listed.framework} {self.version})"
        if key in self.given.unreadable or _is_reference(found):
            found, text = self._unreadable(key, found, is_vital=is_vital)
            words = f"{key} (unknown: set in the file to {text})"
            if field:
                self.unclear[field] = f"{key} is {text}"
        if field and words:
            self.sources[field] = words
        return found

    def number(self, key: str, *, field: str = "", is_vital: bool = False) -> float | None:
        """A finite number, also where YAML took it for text (``1e-6``).

        Raises:
            SpecError: it is something else.
        """
        found = self.value(key, field=field, is_vital=is_vital)
        if found is None or isinstance(found, bool):
            return None if found is None else self._refuse(key, found, "a number")
        try:
            number = float(found)
        except (TypeError, ValueError):
            return self._refuse(key, found, "a number")
        return number if math.isfinite(number) else self._refuse(key, found, "a finite number")

    def price(self, key: str) -> float:
        """The KL's coefficient; 0 where neither the file nor the release has one.

        Raises:
            SpecError: it is no number, or below 0: a reward for leaving the reference.
        """
        found = self.number(key, field="beta", is_vital=True)
        if found is None and key in self.given.values:
            return self._refuse(key, found, "a number, 0 or above")
        if found is not None and found < 0:
            return self._refuse(key, found, "0 or above: a negative one pays for KL")
        return found or 0.0

    def whole(self, key: str, *, field: str = "") -> int | None:
        """A whole number.

        Raises:
            SpecError: it is something else.
        """
        number = self.number(key, field=field)
        if number is None:
            return None
        return int(number) if number == int(number) else self._refuse(key, number, "a whole number")

    def size(self, key: str, field: str) -> int:
        """A whole number above 0.

        Raises:
            SpecError: it is something else, or neither the file nor the release says it.
        """
        found = self.whole(key, field=field)
        if field in self.unclear:
            return max(found or 0, 2)  # a stand-in that every algorithm can run
        return (
            found
            if found is not None and found > 0
            else self._refuse(key, found, "a number above 0")
        )

    def switch(self, key: str, *, field: str = "") -> bool:
        """A truth value; absent: False.

        Raises:
            SpecError: it is something else.
        """
        found = self.value(key, field=field, is_vital=True)
        if isinstance(found, str) and found.lower() in ("true", "false"):
            return found.lower() == "true"
        if found is None or isinstance(found, bool) or found in (0, 1):
            return bool(found)
        return self._refuse(key, found, "true or false")

    def word(self, key: str, *, field: str = "") -> str:
        """Text; absent: empty."""
        found = self.value(key, field=field, is_vital=True)
        return "" if found is None else str(found)

    def loose(self, key: str) -> str:
        """Text that nothing depends on, such as a model's name; empty where it is no plain value."""
        self._used.add(key)
        found = self.given.values.get(key)
        return found if isinstance(found, str) and "$" not in found else ""

    def passed_over(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Keys of the file that were not looked at: those that the release does not have, and the others."""
        names = [*self.given.values, *self.given.unreadable]
        rest = [name for name in names if name not in self._used]
        unknown = [name for name in rest if self._is_unknown(name)]
        return tuple(map(self._suggested, unknown)), tuple(n for n in rest if n not in unknown)

    def _is_unknown(self, key: str) -> bool:
        if self.is_listed(key):
            return False
        return _is_complete(self.listed.framework, key) or bool(self._like(key))

    def _suggested(self, key: str) -> str:
        close = self._like(key)
        return f"{key} (did you mean {close}?)" if close else key

    def _like(self, key: str) -> str:
        """A key of the same section that is spelled almost like it; empty where none is."""
        known = [
            name.removeprefix(self._prefix)
            for name in self.listed.defaults
            if name.startswith(self._prefix) and not name.endswith(" choices")
        ]
        section = key.rpartition(".")[0]
        known = [name for name in known if name.rpartition(".")[0] == section]
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.92)
        return close[0] if close and close[0] not in self.given.values else ""

    def _default(self, key: str) -> Any:
        found = self._followed(self.listed.defaults[f"{self._prefix}{key}"], key)
        self.defaults[key] = found
        return found

    def _followed(self, value: Any, key: str, depth: int = 0) -> Any:
        """Resolve a reference to another key; one that can't be resolved stays."""
        if not isinstance(value, str) or depth > 9:
            return value
        found = _REFERENCE.fullmatch(value.strip())
        if found is None:
            return value
        name = found[1]
        if name.startswith("."):
            name = f"{key.rpartition('.')[0]}{name}"
        if name in self.given.values:
            return self._followed(self.given.values[name], name, depth + 1)
        if f"{self._prefix}{name}" in self.listed:
            return self._followed(self.listed.defaults[f"{self._prefix}{name}"], name, depth + 1)
        if found[2] is None:
            return value
        return None if found[2] in ("null", "None", "") else found[2]

    def _unreadable(self, key: str, found: Any, *, is_vital: bool) -> tuple[Any, str]:
        """A value to go on with, and what the file has."""
        text = str(self.given.unreadable.get(key, found))
        if is_vital:
            raise SpecError(
                f"{self.given.where}: {key} is {text}, no plain value, and nothing in the file is run: write its value"
            )
        self.warnings.append(f"{key} is {text}, no plain value: what it is set to is not known")
        default = None
        if self.is_listed(key):
            default = self._followed(self.listed.defaults[f"{self._prefix}{key}"], key)
        return (None if _is_reference(default) else default), text

    def _refuse(self, key: str, found: object, what: str) -> Any:
        raise SpecError(f"{self.given.where}: {key} must be {what} (got {found!r})")


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and "${" in value


def _is_complete(framework: str, key: str) -> bool:
    return re.fullmatch(_COMPLETE[framework], key) is not None


def release_of(framework: str, version: str | None, given: Given) -> tuple[KeyList, str]:
    """The list to read the file by, and a sentence about it.

    Without a version: the newest release that has most of the file's keys.

    Raises:
        SpecError: a release before all lists, or no release at all.
    """
    if version is not None:
        try:
            return key_list(framework, version)
        except SpecError as error:
            raise SpecError(str(error).replace("--version", "--from-version")) from error
    names = [k for k in (*given.values, *given.unreadable) if _is_complete(framework, k)]
    lists = [key_list(framework, one)[0] for one in listed_versions(framework)]
    missing = [sum(name not in one for name in names) for one in lists]
    fewest = min(missing)
    best = next(
        one for one, num in zip(reversed(lists), reversed(missing), strict=True) if num == fewest
    )
    which = (
        "the newest on record" if best is lists[-1] else "the newest on record that has its keys"
    )
    return best, (
        f"read as {framework} {best.version}, {which}; defaults differ between releases: --from-version X says which"
    )
