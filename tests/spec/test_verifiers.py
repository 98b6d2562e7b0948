"""The sections of verifiers."""

from __future__ import annotations

import pytest

from kltune.spec.verifiers import CodeVerifierSpec, JsonVerifierSpec, MathVerifierSpec


def test_an_unknown_verifier_is_told_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"must be math, json or code \(got 'maths'\)"):
        MathVerifierSpec.model_validate({"verifier": "maths"})


def test_one_schema_for_all_or_one_for_each() -> None:
    with pytest.raises(ValueError, match="schema_column: does not go with schema"):
        JsonVerifierSpec.model_validate({"verifier": "json", "schema": "a", "schema_column": "b"})


def test_a_time_is_written_as_people_write_it() -> None:
    assert CodeVerifierSpec.model_validate({"verifier": "code", "timeout": "2m"}).timeout == 120
    with pytest.raises(ValueError, match="timeout"):
        CodeVerifierSpec.model_validate({"verifier": "code", "timeout": "0s"})
