"""A Python file's text in, the arguments of its one GRPOConfig or RLOOConfig out. It is parsed, never run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from kltune.errors import SpecError

_BUILDERS: Final = ("GRPOConfig", "RLOOConfig")
_KL: Final = {
    "GRPOConfig": (
        "beta",
        "use_bias_correction_kl",
        "loss_type",
        "scale_rewards",
        "num_generations",
    ),
    "RLOOConfig": ("beta", "num_generations"),
}
"""Arguments that the KL's numbers depend on."""

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
    found = _arguments(name, ours[0], _constants(tree))
    return _with_later_changes(name, tree, ours[0], found)


def _arguments(name: str, call: ast.Call, constants: Mapping[str, Any]) -> ConfigCall:
    values: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    notes: list[str] = []
    for argument in call.keywords:
        if argument.arg is not None:
            _put(argument.arg, argument.value, constants, values, unreadable)
            continue
        inside = _dictionary(argument.value, constants)
        if inside is not None:
            for key, node in inside.items():
                _put(key, node, constants, values, unreadable)
            continue
        given = {one.arg for one in call.keywords}
        missing = [key for key in _KL[_called(call)] if key not in given]
        text = ast.unparse(argument.value)
        if missing:
            raise SpecError(
                f"{name}: line {call.lineno}: **{text} can't be read and may set {', '.join(missing)}; nothing in the file "
                "is run: write them into the call"
            )
        notes.append(f"**{text} is not followed: it may set anything else")
    if len(call.args) > 1:
        notes.append("arguments without a name are not read")
    return ConfigCall(_called(call), values, unreadable, tuple(notes))


def _put(
    key: str,
    node: ast.expr,
    constants: Mapping[str, Any],
    values: dict[str, Any],
    unreadable: dict[str, str],
) -> None:
    """A value into either of the two."""
    values.pop(key, None)
    unreadable.pop(key, None)
    if isinstance(node, ast.Name) and node.id in constants:
        values[key] = constants[node.id]
        return
    try:
        values[key] = ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        unreadable[key] = " ".join(ast.unparse(node).split())


def _dictionary(node: ast.expr, constants: Mapping[str, Any]) -> dict[str, ast.expr] | None:
    """Keys and values of a dictionary that is written out; None: it is not."""
    if isinstance(node, ast.Name) and isinstance(constants.get(node.id), dict):
        node = ast.parse(repr(constants[node.id]), mode="eval").body
    if isinstance(node, ast.Call) and _called(node) == "dict" and not node.args:
        pairs = {one.arg: one.value for one in node.keywords if one.arg is not None}
        return pairs if len(pairs) == len(node.keywords) else None
    if not isinstance(node, ast.Dict):
        return None
    found: dict[str, ast.expr] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            return None
        found[key.value] = value
    return found


def _with_later_changes(
    name: str, tree: ast.Module, call: ast.Call, found: ConfigCall
) -> ConfigCall:
    """With what is assigned to the configuration's attributes after it was built.

    Raises:
        SpecError: which attribute that is, is not written out.
    """
    values, unreadable = dict(found.values), dict(found.unreadable)
    held = {ast.unparse(one) for one in _targets(tree, call)}
    straight = _statements_beside(tree, call)
    for statement in ast.walk(tree):
        for owner, key, node in _changes(statement):
            if owner not in held:
                continue
            if key is None:
                raise SpecError(
                    f"{name}: line {getattr(statement, 'lineno', 0)}: {ast.unparse(statement)} sets something of the "
                    "configuration, and what is not written out; write it into the call"
                )
            line = getattr(statement, "lineno", 0)
            if statement in straight and node is not None:
                _put(key, node, {}, values, unreadable)
            else:
                values.pop(key, None)
                unreadable[key] = (
                    f"changed in line {line} ({' '.join(ast.unparse(statement).split())})"
                )
    return ConfigCall(found.builder, values, unreadable, found.notes)


def _targets(tree: ast.Module, call: ast.Call) -> list[ast.expr]:
    """What the call's result is assigned to."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node.value is call:
            found += node.targets
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is call:
            found.append(node.target)
    return found


def _statements_beside(tree: ast.Module, call: ast.Call) -> list[ast.AST]:
    """Those that run whenever the call does, after it; a call as a statement as its expression too."""
    for parent in ast.walk(tree):
        for body in (getattr(parent, "body", None), getattr(parent, "orelse", None)):
            if not isinstance(body, list):
                continue
            statements = cast("list[ast.stmt]", body)
            for num, one in enumerate(statements):
                if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is call:
                    after: list[ast.AST] = [*statements[num + 1 :]]
                    return after + [s.value for s in after if isinstance(s, ast.Expr)]
    return []


def _changes(node: ast.AST) -> list[tuple[str, str | None, ast.expr | None]]:
    """Whose attribute a node sets, which (None: not written out), and to what (None: not written out)."""
    if isinstance(node, ast.Assign):
        return [
            (ast.unparse(one.value), one.attr, node.value)
            for one in node.targets
            if isinstance(one, ast.Attribute)
        ]
    if isinstance(node, ast.AugAssign | ast.AnnAssign) and isinstance(node.target, ast.Attribute):
        value = node.value if isinstance(node, ast.AnnAssign) else None
        return [(ast.unparse(node.target.value), node.target.attr, value)]
    if not isinstance(node, ast.Call) or not node.args:
        return _bulk(node) if isinstance(node, ast.Call) else []
    owner, name = ast.unparse(node.args[0]), _called(node)
    if name in ("setattr", "__setattr__") and len(node.args) == 3:
        key = node.args[1]
        is_plain = isinstance(key, ast.Constant) and isinstance(key.value, str)
        return [(owner, str(cast("ast.Constant", key).value) if is_plain else None, node.args[2])]
    if name == "replace" and node.keywords:
        return [(owner, one.arg, None) for one in node.keywords]
    return _bulk(node)


def _bulk(node: ast.Call) -> list[tuple[str, str | None, ast.expr | None]]:
    """``vars(a).update(...)`` and ``a.__dict__.update(...)``."""
    if _called(node) != "update" or not isinstance(node.func, ast.Attribute):
        return []
    inner = node.func.value
    if isinstance(inner, ast.Attribute) and inner.attr == "__dict__":
        return [(ast.unparse(inner.value), None, None)]
    if isinstance(inner, ast.Call) and _called(inner) == "vars" and inner.args:
        return [(ast.unparse(inner.args[0]), None, None)]
    return []


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
    changed = _changed_within(tree)
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if (
                isinstance(target, ast.Name)
                and counts.get(target.id) == 1
                and target.id not in changed
            ):
                try:
                    found[target.id] = ast.literal_eval(node.value)
                except (ValueError, TypeError, MemoryError, RecursionError):
                    continue
    return found


def _changed_within(tree: ast.Module) -> set[str]:
    """Names whose value is changed in place: an item of it set, or a method of it called."""
    found: set[str] = set()
    for node in ast.walk(tree):
        inner = node
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            inner = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            inner = node.func.value
        if isinstance(inner, ast.Name) and inner is not node:
            found.add(inner.id)
    return found
