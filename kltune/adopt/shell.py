"""A shell script in, its commands as words out, with what it sets itself filled in. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kltune.adopt.arithmetic import whole_number

_SETS: Final = r"(?:(?:export|local|readonly|declare(?:\s+-\w+)*)\s+)?"
_ASSIGNED: Final = re.compile(rf"\s*{_SETS}([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_IN_PASSING: Final = re.compile(rf"(?:&&|\|\||\bthen|\belse|\bdo|\))\s+{_SETS}([A-Za-z_]\w*)=(\S*)")
_LOOPED: Final = re.compile(r"\s*(?:for\s+|read\s+(?:-\w+\s+)*)([A-Za-z_]\w*)")
_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?[-=]([^{}]*))?\}|([A-Za-z_]\w*))")
_EXPANDED: Final = re.compile(r"\$\{?([A-Za-z_]\w*)")
_SUM: Final = re.compile(r"\$\(\(((?:[^()$`]|\([^()$`]*\))*)\)\)")
_OPENS: Final = re.compile(r"\s*(?:if|for|while|until|case|select)\b")
_CLOSES: Final = re.compile(r"\s*(?:fi|done|esac)\b")
_CLOSED_AT_ONCE: Final = re.compile(r"[;\s](?:fi|done|esac)\s*;?\s*$")
_SOURCED: Final = re.compile(r"\s*(?:source|\.)\s+(\S+)")
_HARMLESS: Final = re.compile(r"(?:activate|conda\.sh)[\"']?$")
"""Files that set up Python alone."""

_SPEAKS: Final = ("echo", "printf", "cat", "mkdir", "cd", "ls", "rm", "set", "unset", "trap")
"""Commands that start no training, whatever their words are."""

_HIDDEN: Final[Mapping[str, str]] = MappingProxyType(
    {" ": "\ue000", '"': "\ue001", "'": "\ue002", "\t": "\ue003", "#": "\ue004"}
)
"""What splits words, within ``$(...)``."""

_LONGEST: Final = 50_000
"""Characters of one command."""


@dataclass(frozen=True, slots=True)
class Word:
    """Of a command."""

    text: str
    line: int
    """Of the script, from 1."""
    is_sure: bool = True
    """False: only one branch of the script puts it there."""


@dataclass(frozen=True, slots=True)
class Shell:
    """What a script runs."""

    commands: tuple[tuple[Word, ...], ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _State:
    unsure: frozenset[str]
    """Variables that are set to different things, or in a branch alone."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    arrays: dict[str, list[Word]] = field(default_factory=dict[str, list[Word]])
    """With what an unsure variable may hold among them."""
    is_sourced: bool = False
    """Another file was read in: it may have set whatever this one leaves open."""
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    number: int
    in_branch: bool


def shell_of(text: str) -> Shell:
    """Comments gone, lines joined, variables and arrays that it sets itself filled in."""
    lines = _lines(text)
    state = _State(_unsure(lines))
    found = [words for line in lines if (words := _read(line, state))]
    commands = [tuple(_expanded(words, state.arrays)) for words in found]
    return Shell(tuple(one for one in commands if one), tuple(state.notes))


def shown(text: str) -> str:
    """As the script has it."""
    for char, hidden in _HIDDEN.items():
        text = text.replace(hidden, char)
    return text


def _read(line: _Line, state: _State) -> list[Word]:
    """The words of a command; none of a line that sets something, which is kept."""
    sourced = _SOURCED.match(line.text)
    if sourced is not None and _HARMLESS.search(sourced[1]) is None:
        state.notes.append(
            f"line {line.number}: {shown(sourced[1])} is read in there and not followed: it may set anything"
        )
        state.variables.clear()
        state.is_sourced = True
        return []
    assigned = _ASSIGNED.match(line.text)
    if assigned is not None and _is_kept(assigned, line, state):
        return []
    words = _split(_filled(line.text, state))
    return [] if not words or words[0] in _SPEAKS else _words(words, line, is_sure=True)


def _is_kept(assigned: re.Match[str], line: _Line, state: _State) -> bool:
    name, is_more, value = assigned[1], bool(assigned[2]), assigned[3]
    if value.lstrip().startswith("("):
        inner = re.sub(r"\)\s*(?:#[^\n]*)?$", "", value.strip().removeprefix("("))
        words = _words(_split(_filled(inner, state)), line, is_sure=not line.in_branch)
        before = state.arrays.get(name, []) if is_more or line.in_branch else []
        state.arrays[name] = [*before, *words]
        return True
    parts = _split(re.sub(r";+\s*$", "", _filled(value, state)))
    if len(parts) > 1:
        return False  # set for one command, or the first of several commands
    text = parts[0] if parts else ""
    if name in state.unsure:
        words = _words(_split(text), line, is_sure=False)
        state.arrays[name] = [*state.arrays.get(name, []), *words]
    else:
        state.variables[name] = (state.variables.get(name, "") if is_more else "") + text
    return True


def _words(texts: Sequence[str], line: _Line, *, is_sure: bool) -> list[Word]:
    return [Word(text, line.number, is_sure) for text in texts]


def _expanded(
    words: Sequence[Word], arrays: Mapping[str, Sequence[Word]], depth: int = 0
) -> list[Word]:
    """With the words of its arrays in their places."""
    found: list[Word] = []
    for word in words:
        name = _EXPANDED.match(word.text)
        if name is None or name[1] not in arrays or "=" in word.text or depth > 5:
            found.append(word)
            continue
        inside = _expanded(arrays[name[1]], arrays, depth + 1)
        found += [Word(one.text, one.line, one.is_sure and word.is_sure) for one in inside]
    return found


def _unsure(lines: Sequence[_Line]) -> frozenset[str]:
    """Variables that are set to different things, as in the branches of an if: which one holds is not known."""
    seen: dict[str, str] = {}
    unsure: set[str] = set()
    for line in lines:
        unsure |= {one[1] for one in _IN_PASSING.finditer(line.text)}
        looped = _LOOPED.match(line.text)
        if looped is not None:
            unsure.add(looped[1])
        found = _ASSIGNED.match(line.text)
        if found is None or found[3].lstrip().startswith("("):
            continue
        adds = re.search(rf"\$\{{?{found[1]}\b(?!\w*:?[-=])", found[3])
        if found[2] or adds:
            if line.in_branch:
                unsure.add(found[1])
            continue  # what is added to itself goes on as it stands
        value = re.sub(r";+\s*$", "", found[3].strip())
        if line.in_branch and seen.get(found[1]) != value:
            unsure.add(found[1])
        if seen.setdefault(found[1], value) != value:
            unsure.add(found[1])
    return frozenset(unsure)


def _lines(text: str) -> list[_Line]:
    """Logical ones: one ended by a backslash goes on; so does a quote or an array that is still open."""
    lines: list[_Line] = []
    depth = 0
    for whole, number in _joined(text):
        depth = max(0, depth - (_CLOSES.match(whole) is not None))
        lines.append(_Line(whole, number, depth > 0))
        depth += _OPENS.match(whole) is not None and _CLOSED_AT_ONCE.search(whole) is None
    return lines


def _joined(text: str) -> Iterator[tuple[str, int]]:
    """With the number of the first of them."""
    pending, start = "", 1
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        line = _hidden(raw)
        if pending and line.lstrip().startswith("#"):
            continue  # a comment among continued lines: people leave them there
        whole, start = pending + line, start if pending else number
        if re.search(r"\\\s*$", line) and not line.lstrip().startswith("#"):
            pending = re.sub(r"\\\s*$", " ", whole)
        elif len(whole) < _LONGEST and (_is_open_quote(whole) or _is_open_array(whole)):
            pending = whole + "\n"
        else:
            yield whole, start
            pending = ""
    if pending.strip():
        yield pending, start


def _hidden(line: str) -> str:
    """With what is within ``$(...)`` and backticks as one word."""
    found, place = "", 0
    while place < len(line):
        end = _end_of(line, place)
        inside = line[place:end]
        if end - place > 1:
            for char, hidden in _HIDDEN.items():
                inside = inside.replace(char, hidden)
        found += inside
        place = end
    return found


def _end_of(line: str, place: int) -> int:
    """Where what begins there ends: a command substitution as a whole, anything else after a character."""
    if line[place] == "`":
        return line.find("`", place + 1) + 1 or place + 1
    if not line.startswith("$(", place):
        return place + 1
    depth = 0
    for num in range(place + 1, len(line)):
        depth += {"(": 1, ")": -1}.get(line[num], 0)
        if depth == 0:
            return num + 1
    return place + 1


def _is_open_quote(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError as error:
        return "quotation" in str(error)
    return False


def _is_open_array(line: str) -> bool:
    found = _ASSIGNED.match(line)
    if found is None or not found[3].lstrip().startswith("("):
        return False
    words = shlex.split(line, comments=True)
    return sum(word.count("(") - word.count(")") for word in words) > 0


def _split(line: str) -> list[str]:
    try:
        found = shlex.split(line, comments=True)
    except ValueError:
        found = line.split()
    words = [word.rstrip(";") for word in found]
    return [word for word in words if word not in ("\\", "(", ")", "{", "}", "")]


def _filled(text: str, state: _State) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        if name in state.variables:
            return state.variables[name]
        is_default = found[2] is not None and not state.is_sourced and name not in state.unsure
        return found[2] if is_default else found[0]

    def result(found: re.Match[str]) -> str:
        number = whole_number(shown(found[1]), state.variables)
        return found[0] if number is None else str(number)

    for _ in range(9):  # a default may hold a variable with a default
        filled = _SUM.sub(result, _VARIABLE.sub(value, text))
        if filled == text or len(filled) > _LONGEST:
            break
        text = filled
    return text
