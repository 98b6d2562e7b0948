"""Oracle O5 of kl-reference.md §8: the aggregation that a file names sums the rows of §3.2 as the study does.

The formulas are written down here once more, as the frameworks' own code has them: verl's ``agg_loss``,
TRL's ``_compute_loss`` by loss_type, OpenRLHF's masked mean, NeMo-RL's ``token_level_loss``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from export_case import target, winner

from kltune.export.nemo_rl import export_nemo_rl
from kltune.export.openrlhf import export_openrlhf
from kltune.export.trl import export_trl
from kltune.export.verl import export_verl
from kltune.trainer.aggregate import token_weights, weighted_sum

LIMIT = 4
LOSS = np.array([[1.0, 1.0, 1.0, 1.0], [5.0, 0.0, 0.0, 0.0]])
MASK = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
EXPECTED = {
    "token-mean": 1.8,
    "seq-mean-token-mean": 3.0,
    "seq-mean-token-sum": 4.5,
    "constant": 1.125,
}
ACTOR = "actor_rollout_ref.actor"


def token_mean() -> float:
    return float((LOSS * MASK).sum() / MASK.sum())


def of_rows(per_row: Any) -> float:
    return float(per_row.sum() / len(LOSS))


def sums() -> Any:
    return (LOSS * MASK).sum(axis=1)


def by_verl(values: dict[str, Any]) -> float:
    match values[f"{ACTOR}.loss_agg_mode"]:
        case "token-mean":
            return token_mean()
        case "seq-mean-token-mean":
            return of_rows(sums() / MASK.sum(axis=1))
        case "seq-mean-token-sum":
            return of_rows(sums())
        case "seq-mean-token-sum-norm":
            return of_rows(sums()) / values[f"{ACTOR}.loss_scale_factor"]
    raise AssertionError(values)


def by_trl(values: dict[str, Any]) -> float:
    match values["loss_type"]:
        case "dapo":
            return token_mean()
        case "grpo":
            return of_rows(sums() / MASK.sum(axis=1))
        case "luspo":
            return of_rows(sums())
        case "dr_grpo":
            return float(sums().sum() / (len(LOSS) * values["max_completion_length"]))
    raise AssertionError(values)


def by_openrlhf(_: dict[str, Any]) -> float:
    return token_mean()


def by_nemo_rl(values: dict[str, Any]) -> float:
    if values["loss_fn.token_level_loss"]:
        return token_mean()
    return of_rows(sums() / MASK.sum(axis=1))


def by_kltune(aggregation: str) -> float:
    weights = token_weights(torch.tensor(MASK), aggregation, LIMIT)  # type: ignore[arg-type]
    return float(weighted_sum(torch.tensor(LOSS), weights))


@pytest.mark.parametrize(("aggregation", "expected"), EXPECTED.items())
def test_kltune_sums_the_rows_as_the_table_says(aggregation: str, expected: float) -> None:
    assert by_kltune(aggregation) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("aggregation", "expected"), EXPECTED.items())
@pytest.mark.parametrize(
    ("framework", "export", "formula"),
    [("verl", export_verl, by_verl), ("trl", export_trl, by_trl)],
)
def test_verl_and_trl_are_set_to_the_same_sum(
    framework: str, export: Any, formula: Any, aggregation: str, expected: float
) -> None:
    found = winner(
        trainer={"aggregation": aggregation, "max_new_tokens": LIMIT}, measured={"mean_tokens": 2.5}
    )
    values = dict(export(found, target(found, framework)).values)
    assert formula(values) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("aggregation", EXPECTED)
@pytest.mark.parametrize(
    ("framework", "export", "formula"),
    [("openrlhf", export_openrlhf, by_openrlhf), ("nemo-rl", export_nemo_rl, by_nemo_rl)],
)
def test_where_the_sum_is_another_the_file_says_so(
    framework: str, export: Any, formula: Any, aggregation: str
) -> None:
    found = winner(
        trainer={"aggregation": aggregation, "max_new_tokens": LIMIT}, measured={"mean_tokens": 2.5}
    )
    out = export(found, target(found, framework))
    is_same = formula(dict(out.values)) == pytest.approx(EXPECTED[aggregation], rel=1e-12)
    assert is_same != any(words.startswith("aggregation: the study") for words in out.warnings)


@pytest.mark.parametrize(("version", "times"), [("0.7.0", len(LOSS)), ("0.9.0", 1)])
def test_before_0_7_1_verl_did_not_divide_by_the_responses(version: str, times: int) -> None:
    trainer = {"algorithm": "dr-grpo", "max_new_tokens": LIMIT}
    found = winner(trainer=trainer, measured={"mean_tokens": 2.5})
    out = export_verl(found, target(found, "verl", version))
    said = any("does not divide it by the number of responses" in words for words in out.warnings)
    assert said == (times > 1)
    assert out.values[f"{ACTOR}.loss_agg_mode"] == "seq-mean-token-sum-norm"
