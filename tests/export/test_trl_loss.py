from __future__ import annotations

import pytest
from export_case import target, winner

from kltune.export.trl_loss import loss_type

SUM = {"algorithm": "rloo"}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.26.2", "dr_grpo"),
        ("0.28.0", "dr_grpo"),
        ("1.9.0", "dr_grpo"),
        ("1.9.5", "dr_grpo"),
        ("1.10.0", "luspo"),
        ("1.15.0", "luspo"),
        ("1.16.0", "luspo"),
    ],
)
def test_luspo_is_written_only_where_it_sums_over_tokens(version: str, expected: str) -> None:
    found, warnings = winner(trainer=SUM), list[str]()
    assert loss_type(found.trainer, target(found, "trl", version), warnings).value == expected
    assert [("/ max_completion_length (32)" in line) for line in warnings] == [True] * (
        expected == "dr_grpo"
    )
