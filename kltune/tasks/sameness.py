"""Two scorers in, a refusal out where the training reward is the judgement in disguise."""

from __future__ import annotations

import dis
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, cast

from kltune.errors import SpecError
from kltune.tasks.scorers import FunctionScorer

_PLAIN: Final = (type(None), bool, int, float, str, bytes, frozenset, re.Pattern)


def refuse_same(gold: FunctionScorer, proxy: FunctionScorer, field: str = "task.gold") -> None:
    """Refuse a proxy that is the gold function of ``field``: by reference, by object, or by compiled code.

    A copy under another name, with another docstring or in another file counts as the same; the
    same code with other defaults, closure values or plain module constants does not.

    Raises:
        SpecError: they are the same.
    """
    if gold.name == proxy.name or is_same(gold.function, proxy.function):
        raise SpecError(
            f"task.proxy ({proxy.name}) and {field} ({gold.name}) are the same function; gold must be a "
            "judgement that training never sees: give another proxy or proxy: {learned: {from: gold}}"
        )


def is_same(first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    """Say whether two callables do the same, as far as compiled code and plain values show."""
    return _is_same(first, second, frozenset())


def _is_same(first: object, second: object, seen: frozenset[int]) -> bool:
    if first is second:
        return True
    one, two = _function(first), _function(second)
    if one is not None and two is not None:
        # A function met again on the way down (recursion) adds nothing.
        return id(one) in seen or _is_same_function(one, two, seen | {id(one)})
    parts_one, parts_two = _parts(first), _parts(second)
    if parts_one is not None and parts_two is not None:
        return (
            type(first) is type(second)
            and parts_one.keys() == parts_two.keys()
            and all(_is_same(part, parts_two[key], seen) for key, part in parts_one.items())
        )
    return type(first) is type(second) and isinstance(first, _PLAIN) and first == second


def _function(value: object) -> FunctionType | None:
    if not callable(value) or isinstance(value, functools.partial | MethodType):
        return None
    unwrapped = inspect.unwrap(value)
    return unwrapped if isinstance(unwrapped, FunctionType) else None


def _parts(value: object) -> Mapping[object, object] | None:
    """What a container, a partial or a bound method is made of, by place."""
    if isinstance(value, functools.partial):
        bound = cast("functools.partial[Any]", value)
        return {"func": bound.func, "args": bound.args, "keywords": bound.keywords}
    if isinstance(value, MethodType):
        return {"self": value.__self__, "func": value.__func__}
    if isinstance(value, dict):
        return cast("dict[object, object]", value)
    if isinstance(value, list | tuple):
        return dict(enumerate(cast("list[object]", value)))
    return None


def _is_same_function(first: FunctionType, second: FunctionType, seen: frozenset[int]) -> bool:
    if _shape(first.__code__) != _shape(second.__code__):
        return False
    return _is_same(_surroundings(first), _surroundings(second), seen)


def _shape(code: CodeType) -> tuple[object, ...]:
    """What the code does, without its own name, docstring, file and line numbers."""
    instructions = tuple((i.opname, _operand(i.argval)) for i in dis.get_instructions(code))
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return (code.co_argcount, code.co_kwonlyargcount, code.co_flags, arguments, instructions)


def _operand(value: object) -> object:
    # The type goes along: 1 and 1.0 and True are equal, and not the same constant.
    return _shape(value) if isinstance(value, CodeType) else (value.__class__, value)


def _surroundings(function: FunctionType) -> dict[object, object]:
    """The values that the code uses beside its arguments: defaults, closure, module constants."""
    cells = function.__closure__ or ()
    used: dict[object, object] = {
        name: function.__globals__[name]
        for name in sorted(_names(function.__code__))
        if name in function.__globals__
    }
    used["defaults"] = function.__defaults__
    used["keyword defaults"] = function.__kwdefaults__ or {}
    used["closure"] = [cell.cell_contents for cell in cells]
    return used


def _names(code: CodeType) -> set[str]:
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*(_names(inner) for inner in nested))
