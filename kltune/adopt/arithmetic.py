"""Whole-number arithmetic of a shell in, its result out: sums, products and quotients of numbers and variables."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final


def _quotient(one: int, other: int) -> int:
    """Towards zero, as the shell has it."""
    sign = -1 if (one < 0) != (other < 0) else 1
    return sign * (abs(one) // abs(other))


def _rest(one: int, other: int) -> int:
    return one - other * _quotient(one, other)


_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: _quotient,
        ast.Mod: _rest,
    }
)


def whole_number(text: str, variables: Mapping[str, str]) -> int | None:
    """What ``$((text))`` is; None where it is anything else, or a variable is not known to be a number."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.Name):
            return int(variables[node.id])
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        raise ValueError

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, KeyError, SyntaxError, ArithmeticError, RecursionError):
        return None
