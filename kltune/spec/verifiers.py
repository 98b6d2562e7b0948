"""Rewards that check an answer: the spec's sections for mathematics, JSON and code."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.duration import seconds

Seconds = Annotated[PositiveFloat, BeforeValidator(seconds)]
"""A duration: ``90``, ``90s``, ``15m``."""

VERIFIERS: Final = ("math", "json", "code")
"""Values of ``verifier:``."""


class MathVerifierSpec(Closed):
    """1 where the last answer of the text equals the prompt's, 0 otherwise; by the package math-verify."""

    verifier: Literal["math"]

    answer: str = "answer"
    """Column of the prompts with the right answer: a number, LaTeX, or text that ends in either."""

    answer_after: str | None = None
    """In that column, only what comes after the last of these counts (GSM8K: ``####``)."""

    timeout: Seconds = 5.0
    """Longest time for one answer, in seconds; beyond it the answer counts as wrong."""

    @field_validator("verifier", mode="before")
    @classmethod
    def _is_known(cls, value: object) -> object:
        # An unknown verifier comes here too, for want of a section of its own.
        if value != "math":
            raise ValueError(
                f"must be {', '.join(VERIFIERS[:-1])} or {VERIFIERS[-1]} (got {value!r})"
            )
        return value


class JsonVerifierSpec(Closed):
    """1 where the text is JSON that fits a schema, 0 otherwise; by the package jsonschema."""

    verifier: Literal["json"]

    schema_file: str | None = Field(default=None, alias="schema")
    """A .json file with the schema of every answer."""

    schema_column: str | None = None
    """Column of the prompts with the schema of each, as an object or as JSON text."""

    fenced: bool = True
    """Take the first fenced code block where there is one; false: the whole text must be JSON."""

    @model_validator(mode="after")
    def _has_at_most_one_schema(self) -> Self:
        if self.schema_file is not None and self.schema_column is not None:
            raise FieldProblems(
                ("schema_column", "does not go with schema: give one schema for all, or a column")
            )
        return self


class CodeVerifierSpec(Closed):
    """Share of unit tests that the Python code in the text passes, each run in a child process of its own."""

    verifier: Literal["code"]

    tests: str = "tests"
    """Column of the prompts with the tests: Python text (one test), or a list of them."""

    score: Literal["share", "all"] = "share"
    """Share of the tests that pass, or 1 only if all do."""

    timeout: Seconds = 5.0
    """Longest time for one test, in seconds."""

    memory_mib: Annotated[int, Field(ge=64)] = 512
    """Most memory for one test, in MiB."""

    file_mib: PositiveInt = 1
    """Largest file that a test may write, in MiB."""

    parallel: PositiveInt | None = None
    """Tests at once; none: as many as this process may use cores."""
