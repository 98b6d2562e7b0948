"""A reading with fields that its file sets to what is no plain value in, the same with other values there out.

What depends on such a field is found by trying, as for sigma: whatever comes out otherwise with another value is
not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from kltune.adopt.reading import Reading
from kltune.errors import SpecError
from kltune.export.key import Exported

T = TypeVar("T")


def without_unclear(
    result: Exported, found: Reading, build: Callable[[Reading], Exported]
) -> tuple[Exported, tuple[str, ...]]:
    """Without the keys whose value is not known, and a sentence on each field.

    ``build``: makes the export of a reading.

    Raises:
        SpecError: the KL's own keys depend on such a field.
    """
    if not found.unclear:
        return result, ()
    vital = _kl_keys(result, found, build)
    kept_out: set[str] = set()
    said: dict[str, set[str]] = {}
    for name, text in found.unclear.items():
        moved = {key for other in others(found, name, build) for key in moved_keys(result, other)}
        if moved & vital:
            raise SpecError(
                f"{found.where}: {text}, no plain value, and {', '.join(sorted(moved & vital))} of {result.framework} "
                "depends on it; nothing in the file is run: write its value"
            )
        kept_out |= moved
        said.setdefault(text, set()).update(moved)
    keys = tuple(key for key in result.keys if key.name not in kept_out)
    lines = tuple(
        f"unknown: your file sets it ({text}); kept out of this one: {', '.join(sorted(names))}"
        for text, names in said.items()
        if names
    )
    return replace(result, keys=keys), lines


def others(found: Reading, field: str, build: Callable[[Reading], T]) -> list[T]:
    """What is built with another value of a field.

    Raises:
        SpecError: nothing can be built with another one: the field has to be known.
    """
    problems: list[str] = []
    for one in _shifted(found, field):
        try:
            return [build(one)]
        except SpecError as error:
            problems.append(str(error))
    raise SpecError(
        f"{found.where}: {found.unclear[field]}, no plain value, and it has to be known: write its value"
    )


def moved_keys(one: Exported, other: Exported) -> list[str]:
    """Keys that are not the same in both."""
    return moved(one.values, other.values)


def moved(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Names whose values are not the same in both."""
    return [name for name in one if not is_same(one[name], other.get(name))]


def is_same(one: Any, other: Any) -> bool:
    """But for a rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-6 * max(abs(one), abs(other))
    return one == other


def _kl_keys(result: Exported, found: Reading, build: Callable[[Reading], Exported]) -> set[str]:
    """Keys that say what KL costs and what moves that."""
    kl = found.kl
    if kl.penalty is None:
        return set()
    changed = [replace(kl, beta=2 * kl.beta)]
    if kl.target_token is not None and kl.horizon is not None:
        changed.append(replace(kl, target_token=2 * kl.target_token, horizon=2 * kl.horizon))
    return {key for one in changed for key in moved_keys(result, build(replace(found, kl=one)))}


def _shifted(found: Reading, field: str) -> list[Reading]:
    """With other values of a field, the likeliest to fit first."""
    head = field.partition(".")[0]
    if head == "prompts":
        return [replace(found, prompts=2 * found.prompts)]
    if head == "group_size":
        return [replace(found, group=2 * found.group)]
    if head in ("steps", "lora_rank"):
        return [replace(found, **{head: 2 * (getattr(found, head) or 1)})]
    return [replace(found, trainer=one) for one in _trainers(found.trainer, field)]


def _trainers(trainer: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    head, _, rest = field.partition(".")
    if rest:
        inner = cast("Mapping[str, Any]", trainer.get(head) or {})
        return [{**trainer, head: one} for one in _trainers(inner, rest)]
    now = trainer.get(field)
    if isinstance(now, int):
        return [{**trainer, field: 2 * now or 1}, {**trainer, field: 1 if now > 1 else 3}]
    return [{**trainer, field: one} for one in _values(now)]


def _values(now: float | None) -> tuple[float, ...]:
    return (0.9, 9.0) if now is None else (now / 2 or 0.01,)
