"""JSON that fits a schema, and schemas that are wrong themselves."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.rewards.context import RewardContext
from kltune.rewards.verifiers.json_schema import JsonVerifier
from kltune.spec.verifiers import JsonVerifierSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import ScorerError

pytest.importorskip("jsonschema")

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


def verifier(
    tmp_path: Path, *prompts: Prompt, schema: object = None, **fields: Any
) -> JsonVerifier:
    if schema is not None:
        (tmp_path / "s.json").write_text(json.dumps(schema))
        fields["schema"] = "s.json"
    spec = JsonVerifierSpec.model_validate({"verifier": "json", **fields})
    return JsonVerifier(spec, RewardContext("task.gold", tmp_path.joinpath, prompts))


def score(made: JsonVerifier, text: str, prompt: Prompt | None = None) -> float:
    return made([Sample(prompt or Prompt("p", "?"), text, (), True)])[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"n": 1}', 1),
        ('Here:\n```json\n{"n": 1}\n```\nDone.', 1),
        ('{"n": 1.5}', 0),
        ("[]", 0),
        ('{"n": NaN}', 0),
        ('{"n": 1', 0),
        ("", 0),
        ("[" * 100_000, 0),
    ],
)
def test_a_text_fits_or_it_does_not(tmp_path: Path, text: str, expected: float) -> None:
    assert score(verifier(tmp_path, schema=SCHEMA), text) == expected


def test_fences_can_be_taken_as_part_of_the_text(tmp_path: Path) -> None:
    assert score(verifier(tmp_path, schema=SCHEMA, fenced=False), '```\n{"n": 1}\n```') == 0


def test_without_a_schema_any_json_will_do(tmp_path: Path) -> None:
    made = verifier(tmp_path)
    assert [score(made, text) for text in ('{"a": [1]}', "x")] == [1, 0]


def test_each_prompt_may_have_its_own_schema(tmp_path: Path) -> None:
    one, other = Prompt("a", "?", {"s": SCHEMA}), Prompt("b", "?", {"s": '{"type": "array"}'})
    made = verifier(tmp_path, one, other, schema_column="s")
    assert [score(made, "[]", p) for p in (one, other)] == [0, 1]


def test_a_schema_that_is_wrong_in_itself_is_named_before_anything_is_scored(
    tmp_path: Path,
) -> None:
    with pytest.raises(SpecError, match=r"task\.gold\.schema: .*wrong in itself at \$\.type"):
        verifier(tmp_path, schema={"type": "integr"})
    with pytest.raises(SpecError, match=r"schema_column: prompt 'b'.*not readable as JSON"):
        verifier(tmp_path, Prompt("b", "?", {"s": "{"}), schema_column="s")
    with pytest.raises(SpecError, match="a schema is an object"):
        verifier(tmp_path, schema=[1])


def test_a_reference_is_never_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connected(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", connected)
    monkeypatch.setattr(socket, "getaddrinfo", connected)
    made = verifier(tmp_path, schema={"$ref": "http://example.com/schema.json"})
    with pytest.raises(ScorerError, match="refers to one that is not in it"):
        score(made, "{}")


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(EnvironmentMissingError, match=r"pip install 'kltune\[verifiers\]'"):
        verifier(tmp_path, schema=SCHEMA)
