"""The base of every spec section: frozen, and an unknown key is an error."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    ValidationInfo,
    WrapValidator,
    field_validator,
)

_READERS: Final = (BeforeValidator, PlainValidator, WrapValidator)
"""What reads a number from a text of its own form."""


class FieldProblems(ValueError):
    """What is wrong between the fields of a section: pairs of a field's path and a sentence.

    Raised as ``FieldProblems((path, sentence), ...)``; the loader lists each pair on a line of
    its own.
    """

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs, in the order in which they were found."""
        return self.args

    def __str__(self) -> str:
        return "; ".join(f"{path}: {sentence}" for path, sentence in self.pairs)


class Closed(BaseModel):
    """A frozen section that refuses unknown keys, non-finite numbers, and truth values and texts as numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic reads `true` as 1, so `trials: true` would run one trial.
        field = cls.model_fields[info.field_name or ""]
        annotation = field.annotation
        if isinstance(value, bool) and not _admits_bool(annotation):
            raise ValueError("Input should not be a truth value")
        # It reads '0.1' as 0.1 as well, and then a `true` in quotes would be no better.
        if isinstance(value, str) and _is_number(annotation, field.metadata):
            raise ValueError("Input should be a number, not a text")
        return value


def _is_number(annotation: Any, metadata: Sequence[Any] = ()) -> bool:
    """Whether nothing but a number, or nothing at all, may stand there."""
    if any(isinstance(rule, _READERS) for rule in metadata):
        return False  # as 90s or 15m
    kinds = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return _is_number(kinds[0], annotation.__metadata__)
    if annotation in (int, float):
        return True
    is_union = bool(kinds) and (type(annotation) is UnionType or get_origin(annotation) is Union)
    return is_union and all(kind is type(None) or _is_number(kind) for kind in kinds)


def _admits_bool(annotation: Any) -> bool:
    return annotation is bool or any(_admits_bool(arg) for arg in get_args(annotation))
