"""A Python file's text in, the arguments of its one GRPOConfig or RLOOConfig out. It is parsed, never run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kltune.errors import SpecError

_BUILDERS: Final = ("GRPOConfig", "RLOOConfig")
_OTHERS: Final = ("PPOConfig", "PPOv2Config", "OnlineDPOConfig", "DPOConfig", "SFTConfig")


@dataclass(frozen=True, slots=True)
class ConfigCall:
    """A call that builds TRL's configuration."""

    builder: str
    values: Mapping[str, Any]
    unreadable: Mapping[str, str]
    """Argument and the expression that is no literal."""
    notes: tuple[str, ...]


def config_call(name: str, text: str) -> ConfigCall:
    """Find it; names that the module sets once to a literal are filled in.

    Raises:
        SpecError: it is no Python, or there is no such call, or more than one.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = "" if line is None else f" (line {line})"
        raise SpecError(f"{name}: not Python that can be read{where}") from None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) in _BUILDERS + _OTHERS
    ]
    ours = [call for call in calls if _called(call) in _BUILDERS]
    if len(ours) > 1:
        lines = ", ".join(str(call.lineno) for call in ours)
        raise SpecError(f"{name}: builds {len(ours)} configurations (lines {lines}); leave one")
    if not ours:
        other = f" (it builds a {_called(calls[0])})" if calls else ""
        raise SpecError(f"{name}: no GRPOConfig(...) or RLOOConfig(...) is built in it{other}")
    return _arguments(ours[0], _constants(tree))


def _arguments(call: ast.Call, constants: Mapping[str, Any]) -> ConfigCall:
    values: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    notes: list[str] = []
    for argument in call.keywords:
        if argument.arg is None:
            notes.append(f"**{ast.unparse(argument.value)} is not followed: it may set anything")
            continue
        node = argument.value
        if isinstance(node, ast.Name) and node.id in constants:
            values[argument.arg] = constants[node.id]
            continue
        try:
            values[argument.arg] = ast.literal_eval(node)
        except (ValueError, TypeError, MemoryError, RecursionError):
            unreadable[argument.arg] = " ".join(ast.unparse(node).split())
    if call.args:
        notes.append("arguments without a name are not read")
    return ConfigCall(_called(call), values, unreadable, tuple(notes))


def _called(call: ast.Call) -> str:
    node = call.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Names that the module gives one literal value, once."""
    found: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] = counts.get(node.id, 0) + 1
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and counts.get(target.id) == 1:
                try:
                    found[target.id] = ast.literal_eval(node.value)
                except (ValueError, TypeError, MemoryError, RecursionError):
                    continue
    return found
