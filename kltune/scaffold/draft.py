"""A draft of a spec in (each line with its comment), the YAML file that a person edits out.

`start_draft` (kltune/scaffold/start.py) makes the draft of `kltune init`; what another trainer's configuration
says is laid over it with `SpecDraft.put`. What `render` gives is read by `kltune.spec.load` as it stands.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeGuard, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

Plain = str | int | float | bool | None | Sequence["Plain"] | Mapping[str, "Plain"]

ORDER: Final = (
    "name",
    "task",
    "model",
    "trainer",
    "search",
    "baselines",
    "control",
    "allow_biased",
    "objective",
    "guards",
    "pruning",
    "evaluate",
    "budget",
    "sampler",
    "tracking",
    "kl_unit",
    "beta_unit",
    "seed",
)
"""Sections as they stand in the file: what is learned, how, what is searched, what counts, how much is spent."""

WIDTH: Final = 110
COMMENT_COLUMN: Final = 39

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_NO_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that some reader of YAML takes for a value."""


@dataclass(frozen=True, slots=True)
class DraftLine:
    """One value of the spec and why it is what it is."""

    key: str
    """Dotted, as for ``--set``: ``trainer.steps``."""
    value: Plain
    comment: str = ""
    """In the user's terms, the unit named; one sentence or less."""


@dataclass(frozen=True, slots=True)
class SpecDraft:
    """A spec that is being written. Changed by ``put``, ``drop`` and ``warn``, which give a new one."""

    lines: tuple[DraftLine, ...] = ()
    title: str = ""
    """The comment at the top of the file."""
    warnings: tuple[str, ...] = ()
    """What could not be carried over or should be looked at; comments below the title, and said by the command."""

    def put(self, key: str, value: Plain, comment: str = "") -> SpecDraft:
        """With ``key`` set: in its old place where it was there before, else at the end of its section.

        Raises:
            ValueError: the key is a section of another line, or the other way round.
        """
        for line in self.lines:
            if line.key.startswith(f"{key}.") or key.startswith(f"{line.key}."):
                raise ValueError(f"{key!r} and {line.key!r} can't both be lines of a spec")
        new = DraftLine(key, value, comment)
        if self.get(key) is None:
            return replace(self, lines=(*self.lines, new))
        return replace(self, lines=tuple(new if old.key == key else old for old in self.lines))

    def drop(self, key: str) -> SpecDraft:
        """Without ``key`` and what is below it; nothing happens where it is not there."""
        kept = (
            line for line in self.lines if line.key != key and not line.key.startswith(f"{key}.")
        )
        return replace(self, lines=tuple(kept))

    def warn(self, *texts: str) -> SpecDraft:
        """With further warnings."""
        return replace(self, warnings=(*self.warnings, *texts))

    def under(self, other: SpecDraft, keep: Sequence[str] = ()) -> SpecDraft:
        """With the lines and warnings of ``other`` on top; what is, or is below, a key of ``keep`` stays as it is."""
        draft = replace(self, title=other.title or self.title)
        for line in other.lines:
            if any(line.key == key or line.key.startswith(f"{key}.") for key in keep):
                continue
            sections = line.key.split(".")
            for count in range(1, len(sections)):
                above = ".".join(sections[:count])
                draft = draft.drop(above) if draft.get(above) is not None else draft
            draft = draft if draft.get(line.key) is not None else draft.drop(line.key)
            draft = draft.put(line.key, line.value, line.comment)
        return draft.warn(*other.warnings)

    def get(self, key: str) -> DraftLine | None:
        """The line of ``key``, if there is one."""
        return next((line for line in self.lines if line.key == key), None)

    def data(self) -> dict[str, Any]:
        """What the file says, as nested dictionaries."""
        tree: dict[str, Any] = {}
        for line in self.lines:
            *sections, name = line.key.split(".")
            place = tree
            for section in sections:
                place = place.setdefault(section, {})
            place[name] = line.value
        return tree


def render(draft: SpecDraft) -> str:
    """The file: title, warnings, then every line with its comment beside it (above it where it is long)."""
    head = [*_comment(draft.title, "# ", "# ")]
    for text in draft.warnings:
        head += _comment(f"Look at this: {text}", "# ", "#   ")
    lines = sorted(draft.lines, key=_rank)  # stable: within a section as they were put
    return "\n".join([*head, *_block(lines, ())]) + "\n"


def _rank(line: DraftLine) -> int:
    section = line.key.split(".")[0]
    return ORDER.index(section) if section in ORDER else len(ORDER)


def _block(lines: Sequence[DraftLine], above: tuple[str, ...]) -> list[str]:
    """The lines below the section ``above``, each section once, where its first line stands."""
    depth = len(above)
    rows: list[str] = []
    done: set[str] = set()
    for line in lines:
        parts = line.key.split(".")
        name = parts[depth]
        if name in done:
            continue
        done.add(name)
        if len(parts) == depth + 1:
            rows += _row(line, "  " * depth)
            continue
        same = [other for other in lines if other.key.split(".")[depth] == name]
        rows += [f"{'  ' * depth}{_scalar(name)}:", *_block(same, (*above, name))]
    return rows


def _row(line: DraftLine, indent: str) -> list[str]:
    name = _scalar(line.key.rpartition(".")[2])
    value = line.value
    if _is_list(value) and any(isinstance(item, Mapping) for item in value):
        head = f"{indent}{name}:"
        return [
            *_beside(head, line.comment, indent),
            *(f"{indent}  - {_flow(item)}" for item in value),
        ]
    return _beside(f"{indent}{name}: {_flow(value)}", line.comment, indent)


def _beside(code: str, comment: str, indent: str) -> list[str]:
    text = _clean(comment)
    if not text:
        return [code]
    row = f"{code.ljust(COMMENT_COLUMN - 1)} # {text}"
    if len(row) <= WIDTH:
        return [row]
    return [*_comment(text, f"{indent}# ", f"{indent}# "), code]


def _comment(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        _clean(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _clean(text: str) -> str:
    """One line of characters that can be seen: a comment must not become a key."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _flow(value: Plain) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if _is_list(value):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(cast("str | int | float | bool | None", value))


def _is_list(value: Plain) -> TypeGuard[Sequence[Plain]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _scalar(value: str | float | bool | None) -> str:
    """YAML that reads back as this very value, also between braces."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if _WORD.fullmatch(value) and value.lower() not in _NO_WORDS:
        return value  # most of them; the long way below takes a parser
    is_plain = value.isascii() and not set(value) & set(",[]{}#&*!|>%@`'\"? \\\t\r\n")
    is_word = is_plain and _reads_as(value) == value and _reads_as(f"[{value}]") == [value]
    return value if is_word else _quoted(value)


def _number(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _quoted(value: str) -> str:
    return "".join(
        c if c.isprintable() else (f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}")
        for c in json.dumps(value, ensure_ascii=False)
    )


def _reads_as(text: str) -> object:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return None
