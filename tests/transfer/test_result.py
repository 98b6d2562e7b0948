from __future__ import annotations

import json

import pytest
from fake_transfer import result

from kltune.errors import StudyError
from kltune.metrics.jsonl import encode
from kltune.statistics.drift import Interval
from kltune.transfer.result import Kind, TransferResult, factor_words


def test_a_result_survives_strict_json() -> None:
    found = result()
    data = json.loads(encode(found.as_json()))
    assert TransferResult.from_json(data) == found
    assert data["verdict"] == found.beta.verdict
    assert [study["study"] for study in data["studies"]] == ["small", "medium", "large"]


def test_a_file_of_something_else_is_refused() -> None:
    with pytest.raises(StudyError, match="not a comparison over model sizes"):
        TransferResult.from_json({"studies": []})


def test_a_shift_is_named_with_its_interval_and_a_missing_end_so() -> None:
    beta = result(factor=6.0).beta
    assert beta.kind is Kind.SHIFTS
    assert beta.verdict.startswith("shifts by a factor ")
    assert factor_words(Interval(3.14, 2.0, None)) == "3.14 (2 to any higher)"
    assert factor_words(Interval(None)) == "of unknown size (any lower to any higher)"
