"""The base of every spec section: frozen, and an unknown key is an error."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


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
    """A frozen section that refuses unknown keys, non-finite numbers and truth values as numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic reads `true` as 1, so `trials: true` would run one trial.
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and not _admits_bool(annotation):
            raise ValueError("Input should not be a truth value")
        return value


def _admits_bool(annotation: Any) -> bool:
    return annotation is bool or any(_admits_bool(arg) for arg in get_args(annotation))
