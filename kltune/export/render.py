"""Keys in, a file's text out: Python, YAML or a shell script, each key with its comment beside it."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from kltune.export.key import Exported, Key, Value

_WIDTH = 100


def comment_lines(
    lines: Iterable[str], warnings: Sequence[str], *, is_converted: bool = False
) -> list[str]:
    """The heading and the warnings as comments, wrapped."""
    found: list[str] = []
    for line in lines:
        found += textwrap.wrap(
            _one_line(line), _WIDTH, initial_indent="# ", subsequent_indent="#   "
        )
    if warnings:
        differs = "# Differs from the study, or to be looked at:"
        found.append("# To be looked at:" if is_converted else differs)
    for line in warnings:
        found += textwrap.wrap(
            _one_line(line), _WIDTH, initial_indent="# - ", subsequent_indent="#   "
        )
    return found


def _top(found: Exported, lines: Iterable[str]) -> list[str]:
    return comment_lines(lines, found.warnings, is_converted=found.is_converted)


def python_text(found: Exported, lines: Sequence[str]) -> str:
    """A module with one name, ``config``."""
    body = [
        f"    {'' if key.is_set else '# '}{key.name}={_python(key.value)},  # {_remark(key)}"
        for key in found.keys
    ]
    return "\n".join(
        [
            *_top(found, lines),
            f"from trl import {found.builder}",
            "",
            f"config = {found.builder}(",
            '    output_dir="output",  # yours',
            *body,
            ")",
            "",
        ]
    )


def yaml_text(found: Exported, lines: Sequence[str], before: Sequence[str] = ()) -> str:
    """Nested by the dots of the keys, in the order of their first appearance."""
    tree: dict[str, Any] = {}
    for key in found.keys:
        *sections, name = key.name.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = key
    return "\n".join([*_top(found, lines), *before, *_nested(tree, 0), ""])


def hydra_text(keys: Iterable[Key], program: str) -> list[str]:
    """The same as overrides on a command line, in comments."""
    pairs = [f"{key.name}={_hydra(key.value)}" for key in keys if key.is_set]
    lines = [f"# {program} \\", *(f"#   {pair} \\" for pair in pairs[:-1])]
    return [*lines, f"#   {pairs[-1]}"]


def shell_text(found: Exported, lines: Sequence[str], program: str) -> str:
    """A bash script whose further arguments are passed on; in an array, comments may stand beside flags."""
    body = [f"  {'' if key.is_set else '# '}{_flag(key)}  # {_remark(key)}" for key in found.keys]
    array = "settings" if found.is_converted else "studied"
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *_top(found, lines),
            "# Models, data and devices are yours: give their flags to this script.",
            f"{array}=(",
            *body,
            ")",
            f'{program} "${{{array}[@]}}" "$@"',
            "",
        ]
    )


def _nested(tree: dict[str, Any], depth: int) -> list[str]:
    lines: list[str] = []
    for name, value in tree.items():
        indent = "  " * depth
        if isinstance(value, Key):
            off = "" if value.is_set else "# "
            lines.append(f"{indent}{off}{name}: {_yaml(value.value)}  # {_remark(value)}")
            continue
        inner = _nested(value, depth + 1)
        is_empty = all(line.lstrip().startswith("#") for line in inner)
        lines.append(f"{indent}{'# ' if is_empty else ''}{name}:")
        lines += inner
    return lines


def _remark(key: Key) -> str:
    return _one_line(key.comment if key.is_set else f"not set: {key.comment}")


def _one_line(text: str) -> str:
    """Names of a spec may hold anything; a line break would end the comment."""
    return " ".join(text.split())


def _python(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _yaml(value: Value) -> str:
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _float(value: float) -> str:
    """With a dot: YAML 1.1 reads 1e-06 as text."""
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}.0e{exponent}" if e and "." not in mantissa else text


def _hydra(value: Value) -> str:
    return value if isinstance(value, str) else _yaml(value)


def _flag(key: Key) -> str:
    if value_is_switch(key.value):
        return key.name
    parts: tuple[object, ...] = key.value if isinstance(key.value, tuple) else (key.value,)
    return " ".join([key.name, *(shlex.quote(str(part)) for part in parts)])


def value_is_switch(value: Value) -> bool:
    """Whether a flag stands without a value."""
    return value is True
