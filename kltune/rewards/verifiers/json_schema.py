"""Completions and a JSON schema in, 1 or 0 out."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.rewards.context import CHECKED_PROMPTS, RewardContext
from kltune.rewards.fingerprint import digest
from kltune.spec.verifiers import JsonVerifierSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import ScorerError

_FENCED: Final = re.compile(r"```[\w-]*[ \t]*\n(.*?)```", re.DOTALL)


class JsonVerifier:
    """Reads a text as strict JSON and holds it against a schema; without one any JSON will do."""

    name = "JSON verifier"

    def __init__(self, spec: JsonVerifierSpec, context: RewardContext) -> None:
        """Read the schema and look at those of the first prompts.

        Raises:
            SpecError: no schema where one is named, or one that is wrong in itself.
            EnvironmentMissingError: jsonschema is not installed.
        """
        self._spec, self._field = spec, context.field
        self._compiled: dict[str, Any] = {}
        files = () if spec.schema_file is None else (context.file(spec.schema_file),)
        self.fingerprint = digest(spec, *files, leave_out=("schema_file",))
        self._common = None
        if files:
            text = files[0].read_text(encoding="utf-8")
            self._common = self._validator(text, f"{context.field}.schema: {files[0]}")
        if spec.schema_column is not None:
            context.check_columns([spec.schema_column])
            for prompt in context.prompts[:CHECKED_PROMPTS]:
                self._of(prompt)

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """1 where the text is JSON that fits.

        Raises:
            SpecError: the schema of a prompt is wrong in itself.
            ScorerError: a schema refers to one that is not in it.
        """
        return [float(self._fits(sample)) for sample in samples]

    def _fits(self, sample: Sample) -> bool:
        found = _FENCED.search(sample.text) if self._spec.fenced else None
        try:
            value = json.loads(found[1] if found else sample.text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return False
        validator = self._of(sample.prompt)
        if validator is None:
            return True
        try:
            return bool(validator.is_valid(value))
        except RecursionError:  # nested as deep as Python goes
            return False
        except importlib.import_module("referencing.exceptions").Unresolvable as error:
            raise ScorerError(
                f"scorer {self.name}: the schema of prompt {sample.prompt.id!r} refers to one that is not in it ({error})"
            ) from error

    def _of(self, prompt: Prompt) -> Any | None:
        column = self._spec.schema_column
        if column is None:
            return self._common
        given = prompt.columns.get(column)
        text = given if isinstance(given, str) else json.dumps(given, sort_keys=True)
        where = f"{self._field}.schema_column: prompt {prompt.id!r}"
        return self._validator(text, where)

    def _validator(self, text: str, where: str) -> Any:
        if text not in self._compiled:
            self._compiled[text] = _compiled(text, where)
        return self._compiled[text]


def _compiled(text: str, where: str) -> Any:
    try:
        jsonschema = importlib.import_module("jsonschema")
        referencing = importlib.import_module("referencing")
    except ImportError:
        raise EnvironmentMissingError(
            f"{where}: checking a schema needs the package jsonschema: pip install 'kltune[verifiers]'"
        ) from None
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise SpecError(f"{where}: the schema is not readable as JSON ({error})") from error
    if not isinstance(schema, Mapping | bool):
        raise SpecError(f"{where}: a schema is an object {{...}} (got {text[:60]!r})")
    kind: Any = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise SpecError(
            f"{where}: wrong in itself at {error.json_path}: {error.message}"
        ) from error
    # A registry of its own: without one, references are fetched over the network.
    return kind(schema, registry=referencing.Registry())


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")
