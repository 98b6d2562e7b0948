"""A shell script or a command line in, its Hydra overrides or its flags out. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

_OVERRIDE: Final = re.compile(r"(\+{0,2})([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_REMOVED: Final = re.compile(r"~([A-Za-z_]\w*(?:\.\w+)+)(?:=.*)?")
_ASSIGNED: Final = re.compile(
    r"^\s*(?:export\s+|local\s+|declare\s+(?:-\w+\s+)?)?([A-Za-z_]\w*)=(.*)$"
)
_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?[-=]([^{}]*))?\}|([A-Za-z_]\w*))")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_WORD: Final = re.compile(r"[A-Za-z_][\w./-]*")
_CONSTANTS: Final[Mapping[str, bool | None]] = MappingProxyType(
    {"true": True, "false": False, "null": None, "none": None}
)
_OF_RAY: Final = frozenset({"--address", "--runtime-env-json", "--working-dir", "--no-wait"})
"""Flags of ``ray job submit``, in front of the program's own."""


_END: Final = "\n"
"""Of a command: the next line's words are no value of its last flag."""


@dataclass(frozen=True, slots=True)
class Found:
    """Keys of a command line."""

    values: Mapping[str, Any]
    unreadable: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def renamed(self, rename: Callable[[str], str]) -> Found:
        """With other key names."""
        return replace(
            self,
            values={rename(key): value for key, value in self.values.items()},
            unreadable={rename(key): value for key, value in self.unreadable.items()},
        )


def overrides_of(text: str) -> Found:
    """``a.b=c`` anywhere in it, the last one winning."""
    values: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    notes: list[str] = []
    for word in _words(text):
        removed = _REMOVED.fullmatch(word)
        if removed is not None:
            notes.append(f"~{removed[1]} (Hydra's removal of a key) is not followed")
            continue
        found = _OVERRIDE.fullmatch(word)
        if found is None:
            continue
        key, value = found[2], found[3]
        before = values.pop(key, unreadable.pop(key, _END))
        if _is_open(value):
            unreadable[key] = value
        else:
            values[key] = _plain(value)
        notes += _repeated(key, before, values.get(key, value))
    return Found(values, unreadable, tuple(notes))


def flags_of(text: str) -> Found:
    """``--flag value ...`` anywhere in it; a flag without a value is True; the last one wins."""
    values: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    notes: list[str] = []
    words = _words(text)
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if re.match(r"--[A-Za-z]", word) is None:
            continue
        flag, equals, rest = word.partition("=")
        given = [rest] if equals else []
        while not equals and place < len(words) and _is_value(words[place]):
            given.append(words[place])
            place += 1
        if flag in _OF_RAY:
            continue
        before = values.pop(flag, unreadable.pop(flag, _END))
        if any(_is_open(one) for one in given):
            unreadable[flag] = " ".join(given)
        elif not given:
            values[flag] = True
        else:
            plain = [_plain(one) for one in given]
            values[flag] = plain[0] if len(plain) == 1 else plain
        notes += _repeated(flag, before, values.get(flag, before))
    return Found(values, unreadable, tuple(notes))


def _repeated(key: str, before: Any, now: Any) -> list[str]:
    if before in (_END, now):
        return []
    return [f"{key} stands there more than once: the last one, {now}, is taken"]


def _words(text: str) -> list[str]:
    """The script's words: comments gone, lines joined, variables that it sets itself filled in."""
    variables: dict[str, str] = {}
    words: list[str] = []
    lines = _logical_lines(text)
    unsure = _ambiguous(lines)
    for line in lines:
        assigned = _ASSIGNED.match(line)
        line = _filled(line, variables)
        if assigned is not None and assigned[1] in unsure:
            continue
        if assigned is not None and not assigned[2].lstrip().startswith("("):
            parts = _split(_filled(assigned[2], variables))
            if len(parts) <= 1:
                variables[assigned[1]] = parts[0] if parts else ""
                continue
        words += [*_split(line), _END]
    return [word for word in words if word not in ("\\", "(", ")")]


def _ambiguous(lines: Sequence[str]) -> set[str]:
    """Variables that are set to different things, as in the branches of an if: which one holds is not known."""
    seen: dict[str, str] = {}
    unsure: set[str] = set()
    for line in lines:
        found = _ASSIGNED.match(line)
        if found is None or re.search(rf"\$\{{?{found[1]}\b(?!\w*:?[-=])", found[2]):
            continue  # what is added to itself goes on as it stands
        if seen.setdefault(found[1], found[2].strip()) != found[2].strip():
            unsure.add(found[1])
    return unsure


def _logical_lines(text: str) -> list[str]:
    """Lines ended by a backslash go on; so does a quote that is still open."""
    lines: list[str] = []
    pending = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        if pending and line.lstrip().startswith("#"):
            continue  # a comment among continued lines: people leave them there
        whole = pending + line
        if re.search(r"\\\s*$", line) and not line.lstrip().startswith("#"):
            pending = re.sub(r"\\\s*$", " ", whole)
            continue
        if _is_unbalanced(whole) and len(whole) < 20_000:
            pending = whole + "\n"
            continue
        lines.append(whole)
        pending = ""
    return [*lines, pending] if pending.strip() else lines


def _is_unbalanced(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError as error:
        return "quotation" in str(error)
    return False


def _split(line: str) -> list[str]:
    try:
        found = shlex.split(line, comments=True)
    except ValueError:
        found = line.split()
    words: list[str] = []
    for word in found:
        bare = word
        if re.match(r"[A-Za-z_]\w*=\(", bare):  # the first word of an array
            bare = bare.partition("(")[2]
        if bare.startswith(("+", "~", "-")) or "=" in bare or bare:
            words.append(bare.rstrip(";") if bare.endswith(";") else bare)
    return words


def _filled(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        if name in variables:
            return variables[name]
        return found[2] if found[2] is not None else found[0]

    for _ in range(9):  # a default may hold a variable with a default
        filled = _VARIABLE.sub(value, text)
        if filled == text:
            break
        text = filled
    return text


def _is_open(value: str) -> bool:
    """Whether a shell variable or command is still in it; ``${a.b}`` is Hydra's own, resolved later."""
    without = re.sub(r"\$\{[A-Za-z_][\w.]*\.[\w.]*\}|\$\{oc\.select:[^}]*\}", "", value)
    return "$" in without or "`" in without


def _is_value(word: str) -> bool:
    """Of the flag before it: a negative number is one."""
    if word in (_END, "&&", "||", "|", "&", ";", ">", "2>&1", ")"):
        return False
    return not word.startswith("-") or re.fullmatch(r"-\d.*", word) is not None


def _plain(value: str) -> Any:
    """As YAML reads it; what is no YAML is text."""
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    if _WORD.fullmatch(text):
        return _CONSTANTS.get(text.lower(), value)
    try:
        found = YAML(typ="safe", pure=True).load(text) if text else None
    except (YAMLError, ValueError):
        return value
    if isinstance(found, str) and found.lower() in ("true", "false"):
        return found.lower() == "true"
    return found if isinstance(found, bool | int | float | str | list) or found is None else value
