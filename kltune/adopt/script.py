"""A shell script or a command line in, its Hydra overrides or its flags out. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from ruamel.yaml.error import YAMLError

from kltune.adopt.shell import Word, shell_of, shown
from kltune.spec.yaml_text import parse_yaml

_OVERRIDE: Final = re.compile(r"(\+{0,2})([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_REMOVED: Final = re.compile(r"~([A-Za-z_]\w*(?:\.\w+)+)(?:=.*)?")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_WORD: Final = re.compile(r"[A-Za-z_][\w./-]*")
_CONSTANTS: Final[Mapping[str, bool | None]] = MappingProxyType(
    {"true": True, "false": False, "null": None, "none": None}
)
_OF_RAY: Final = frozenset({"--address", "--runtime-env-json", "--working-dir", "--no-wait"})
"""Flags of ``ray job submit``, in front of the program's own."""

_ENDS: Final = ("&&", "||", "|", "&", ";", ">", "2>&1", ")")
"""Of a flag's values."""

_PROGRAM: Final = re.compile(r"\b(?:python[\d.]*|torchrun|deepspeed|accelerate|ray|cli)\b")
"""A command that starts something of its own, whose words are no business of another one."""


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


@dataclass(frozen=True, slots=True)
class _Setting:
    key: str
    value: Any
    line: int
    is_sure: bool
    is_open: bool
    """A variable or a command is still in it."""


def overrides_of(text: str, entry: str = "") -> Found:
    """``a.b=c`` of the commands that are started, the last one of each winning.

    ``entry``: a pattern of the program that is started; where none of the commands has it, all are read.
    """
    return _found(text, entry, _overrides)


def flags_of(text: str, entry: str = "") -> Found:
    """The same for ``--flag value ...``; a flag without a value is True."""
    return _found(text, entry, _flags)


def _found(
    text: str, entry: str, settings_of: Callable[[Sequence[Word]], Iterator[_Setting]]
) -> Found:
    shell = shell_of(text)
    notes = [*shell.notes]
    commands = [_unpacked(command, entry) for command in shell.commands]
    started = [one for one in commands if entry and re.search(entry, _joined(one))]
    started = [one for one in started if any(True for _ in settings_of(one))] or commands
    notes += [
        f"{word.text} (Hydra's removal of a key) is not followed"
        for command in started
        for word in command
        if _REMOVED.fullmatch(word.text)
    ]
    values: dict[str, _Setting] = {}
    doubts: dict[str, str] = {}
    for command in started:
        of_command: dict[str, _Setting] = {}
        for one in settings_of(command):
            _note_repeated(of_command.get(one.key), one, notes, doubts)
            of_command[one.key] = one
        for key, one in of_command.items():
            _compare(values.setdefault(key, one), one, doubts)
    for command in commands:
        if command in started or _PROGRAM.search(_joined(command)):
            continue
        for one in settings_of(command):
            if one.key in values:
                _compare(values[one.key], one, doubts)
            else:
                doubts[one.key] = (
                    f"{shown(str(one.value))} outside the command that is started (line {one.line})"
                )
    unreadable = {key: shown(str(one.value)) for key, one in values.items() if one.is_open}
    return Found(
        {key: one.value for key, one in values.items() if key not in {**unreadable, **doubts}},
        {**unreadable, **doubts},
        tuple(notes),
    )


def _note_repeated(
    before: _Setting | None, now: _Setting, notes: list[str], doubts: dict[str, str]
) -> None:
    if not now.is_sure and (before is None or before.value != now.value):
        doubts[now.key] = (
            f"{shown(str(now.value))} in a branch of the script alone (line {now.line})"
        )
    elif before is not None and before.value != now.value:
        doubts.pop(now.key, None)
        notes.append(
            f"{now.key} stands there more than once: the last one, {shown(str(now.value))}, is taken"
        )


def _compare(one: _Setting, other: _Setting, doubts: dict[str, str]) -> None:
    """Which of two commands counts is not known."""
    if one.value != other.value:
        doubts.setdefault(
            one.key,
            f"{shown(str(one.value))} in line {one.line} and {shown(str(other.value))} in line {other.line}",
        )


def _joined(command: Sequence[Word]) -> str:
    return " ".join(word.text for word in command)


def _unpacked(command: Sequence[Word], entry: str) -> Sequence[Word]:
    """A whole command line in quotes, as after eval, is its words."""
    found: list[Word] = []
    for word in command:
        if entry and " " in word.text and re.search(entry, word.text):
            found += [Word(one, word.line, word.is_sure) for one in word.text.split()]
        else:
            found.append(word)
    return found


def _overrides(command: Sequence[Word]) -> Iterator[_Setting]:
    for word in command:
        found = _OVERRIDE.fullmatch(word.text)
        if found is not None:
            yield _setting(found[2], [found[3]], word)


def _flags(command: Sequence[Word]) -> Iterator[_Setting]:
    place = 0
    while place < len(command):
        word = command[place]
        place += 1
        if re.match(r"--[A-Za-z]", word.text) is None:
            continue
        flag, equals, rest = word.text.partition("=")
        given = [rest] if equals else []
        while not equals and place < len(command) and _is_value(command[place].text, given):
            given.append(command[place].text)
            place += 1
        if flag not in _OF_RAY:
            yield _setting(flag, given, word)


def _setting(key: str, given: Sequence[str], word: Word) -> _Setting:
    is_open = any(_is_open(one) for one in given)
    value: Any = True
    if is_open:
        value = " ".join(given)
    elif given:
        plain = [_plain(one) for one in given]
        value = plain[0] if len(plain) == 1 else plain
    return _Setting(key, value, word.line, word.is_sure, is_open)


def _is_value(word: str, before: Sequence[str]) -> bool:
    """Of the flag before it: a negative number is one; what is passed on to the script is not."""
    if word in _ENDS or re.match(r"\$\{?[@*]|\$\{\w+\[", word) or (before and word.startswith("$")):
        return False
    return not word.startswith("-") or re.fullmatch(r"-\d.*", word) is not None


def _is_open(value: str) -> bool:
    """Whether a shell variable or command is still in it; ``${a.b}`` is Hydra's own, resolved later."""
    without = re.sub(r"\$\{[A-Za-z_][\w.]*\.[\w.]*\}|\$\{oc\.select:[^}]*\}", "", value)
    return "$" in without or "`" in without


def _plain(value: str) -> Any:
    """As YAML reads it; what is no YAML is text."""
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    if _WORD.fullmatch(text):
        return _CONSTANTS.get(text.lower(), value)
    try:
        found = parse_yaml(text) if text else None
    except (YAMLError, ValueError):
        return value
    if isinstance(found, str) and found.lower() in ("true", "false"):
        return found.lower() == "true"
    return found if isinstance(found, bool | int | float | str | list) or found is None else value
