from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from replay_case import result

from kltune.metrics.jsonl import encode
from kltune.replay.compare import compare_trials


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (0.25, "repeats the record to the last bit: 3 steps and 1 evaluation"),
        (
            0.2500001,
            "parts from the record at step 2, at first by rounding alone (train/loss: 0.25 in the record, 0.2500001 now)",
        ),
        (0.5, "parts from the record at step 2 by more than rounding"),
        (None, "parts from the record at step 2 by more than rounding"),
    ],
)
def test_the_verdict_is_one_sentence(loss: float | None, told: str) -> None:
    assert result(loss).verdict().startswith(told)


def test_what_a_parting_comes_to_is_told_only_where_there_is_one() -> None:
    assert (result().consequence(), result().extent()) == ("", "")
    parted = result(0.5)
    assert parted.consequence() == "gold after step 3: 0.500 ± 0.100 in the record, 0.450 now"
    assert parted.extent() == (
        "3 of 4 steps and evaluations are the same to the last bit; "
        "the largest difference is 0.5 of train/loss at step 2"
    )


def test_it_is_strict_json(tmp_path: Path) -> None:
    facts = json.loads(encode(result(None).as_json()), parse_constant=pytest.fail)
    assert facts["likeness"] == "different"
    assert facts["parts_at"]["largest"][0] == {
        "name": "train/loss",
        "recorded": 0.25,
        "replayed": None,
        "share": None,
    }
    assert [one["different"] for one in facts["by_step"]] == [0, 1, 0, 0]
    assert facts["trace"]["wrong"] == []


def test_nothing_to_compare_is_no_claim() -> None:
    empty = replace(result(), comparison=compare_trials(([], []), ([], [])), gold=None)
    assert "nothing to compare" in empty.verdict()
    assert encode(empty.as_json())
