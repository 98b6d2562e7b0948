"""pydantic's errors on a spec in; one line per mistake out: field, what is wrong, what is allowed."""

from __future__ import annotations

import difflib
import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from kltune.masking import redact
from kltune.spec.closed import FieldProblems

_PLAIN = {
    "missing": "needed, and not given",
    "model_type": "Input should be a section of `key: value` lines",
    "model_attributes_type": "Input should be a section of `key: value` lines",
    "dict_type": "Input should be a section of `key: value` lines",
    "tuple_type": "Input should be a list such as [a, b]",
    "invalid_key": "Keys should be text",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: the path of the field (``guards.kl.limit``) and what is wrong with it."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


def message(source: object, problems: Iterable[Problem]) -> str:
    """Everything that is wrong with ``source``, one line per mistake."""
    lines = list(dict.fromkeys(f"  {problem}" for problem in problems))
    return "\n".join([f"{source}: {len(lines)} problem(s)", *lines])


def describe(errors: Iterable[ErrorDetails], model: type[BaseModel]) -> list[Problem]:
    """Turn pydantic's errors about ``model`` into problems.

    pydantic names the branch of a union in an error's location and reports each branch apart.
    Here the branch is left out and branches of one field become one problem.
    """
    branches: dict[str, list[ErrorDetails]] = {}
    problems: list[Problem | str] = []
    for error in errors:
        keys, is_branch = _field_path(error, model)
        path = ".".join(keys)
        if is_branch:
            if path not in branches:
                problems.append(path)  # its place among the others; filled below
            branches.setdefault(path, []).append(error)
        else:
            problems += _problems_of(error, keys, model)
    return [p if isinstance(p, Problem) else _merged(p, branches[p]) for p in problems]


def _problems_of(error: ErrorDetails, keys: list[str], model: type[BaseModel]) -> Iterator[Problem]:
    path = ".".join(keys)
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, FieldProblems):
        for field, sentence in raised.pairs:
            yield Problem(".".join(filter(None, (path, field))), sentence)
    elif error["type"] == "extra_forbidden":
        yield Problem(path, f"{error['msg']} {_got(error['input'])}; {_allowed(keys, model)}")
    else:
        yield Problem(path, _sentence(error))


def _sentence(error: ErrorDetails) -> str:
    raised = error.get("ctx", {}).get("error")
    text = _PLAIN.get(error["type"], error["msg"]) if raised is None else str(raised)
    if error["type"] == "missing" or "(got " in text or _is_section_rule(error):
        return text
    return f"{text} {_got(error['input'])}"


def _is_section_rule(error: ErrorDetails) -> bool:
    # A rule between fields of a section: the whole section as "got" would only be noise.
    return error["type"] == "value_error" and isinstance(error["input"], dict)


def _merged(path: str, errors: list[ErrorDetails]) -> Problem:
    texts = [_PLAIN.get(error["type"], error["msg"]) for error in errors]
    first, *others = dict.fromkeys(texts)
    either = ", or ".join([first, *(text.removeprefix("Input should be ") for text in others)])
    return Problem(path, f"{either} {_got(errors[0]['input'])}")


def _got(value: object) -> str:
    if isinstance(value, Mapping):
        return f"(got a section with {', '.join(map(str, cast('Any', value))) or 'nothing'})"
    if value is None or isinstance(value, bool):
        return f"(got {json.dumps(value)})"
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 60
    # A key that is misspelt may have an address with its password as its value.
    return f"(got {shortener.repr(redact(value) if isinstance(value, str) else value)})"


def _field_path(error: ErrorDetails, model: type[BaseModel]) -> tuple[list[str], bool]:
    """The location without the names of union branches; whether it ends in a branch of a value."""
    keys: list[str] = []
    types: list[Any] = [model]
    is_branch = False
    for place, key in enumerate(error["loc"]):
        is_last = place == len(error["loc"]) - 1
        inner = list(_inner_types(types, key))
        is_unknown_key = is_last and error["type"] in ("extra_forbidden", "missing", "invalid_key")
        if inner or is_unknown_key:
            keys.append(str(key))
            types = inner
            is_branch = False
        else:
            is_branch = not str(key).startswith("<")  # a tagged branch is reported once anyway
    return keys, is_branch


def _inner_types(types: Iterable[Any], key: int | str) -> Iterator[Any]:
    for kind in _members(types):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, field in kind.model_fields.items():
                if key == (field.alias or name):
                    yield field.annotation
        elif get_origin(kind) is dict and isinstance(key, str):
            yield get_args(kind)[1]
        elif get_origin(kind) is tuple and isinstance(key, int):
            yield from (arg for arg in get_args(kind) if arg is not Ellipsis)


def _members(types: Iterable[Any]) -> Iterator[Any]:
    """Take unions and annotations apart."""
    for kind in types:
        origin = get_origin(kind)
        args = get_args(kind)
        if hasattr(kind, "__metadata__"):
            yield from _members(args[:1])
        elif origin is Union or type(kind).__name__ == "UnionType":
            yield from _members(args)
        else:
            yield kind


def _allowed(keys: list[str], model: type[BaseModel]) -> str:
    """What may stand in place of an unknown last key."""
    siblings = _field_names(keys[:-1], model)
    close = difflib.get_close_matches(keys[-1], siblings, n=1)
    if close:
        return f"did you mean {'.'.join([*keys[:-1], close[0]])}?"
    elsewhere = {path.rsplit(".", 1)[-1]: path for path in _paths(model)}
    close = difflib.get_close_matches(keys[-1], elsewhere, n=1, cutoff=0.75)
    hint = f"did you mean {elsewhere[close[0]]}? " if close else ""
    return f"{hint}allowed here: {', '.join(siblings)}"


def _field_names(keys: list[str], model: type[BaseModel]) -> list[str]:
    types: list[Any] = [model]
    for key in keys:
        types = list(_inner_types(types, key))
    models = [k for k in _members(types) if isinstance(k, type) and issubclass(k, BaseModel)]
    names = (field.alias or name for kind in models for name, field in kind.model_fields.items())
    return list(dict.fromkeys(names))


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        yield path
        for kind in _members([field.annotation]):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _paths(kind, f"{path}.")
