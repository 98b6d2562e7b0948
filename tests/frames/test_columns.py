"""Every column has a meaning, and every number a unit."""

from __future__ import annotations

from pathlib import Path

from fake_study import trial, write_study

from kltune.frames.columns import (
    eval_columns,
    is_measured,
    other_golds,
    sample_columns,
    step_columns,
    trial_columns,
)
from kltune.metrics.names import METRICS
from kltune.report.rows import StudyRows, read_study

NAMES = {"trial", "attempt", "seed"}
TEXT = {"origin", "penalty", "controller", "state", "reason", "detail", "warnings", "feasible"}
TEXT |= {"prompt_id", "prompt", "completion", "ended"}


def study(folder: Path, **spec: object) -> StudyRows:
    golds = {"safety": [0.5] * 9}
    return read_study(write_study(folder / "s", [trial(0.1, others=golds)], **spec))


def test_every_column_has_a_meaning_and_every_number_a_unit(tmp_path: Path) -> None:
    rows = study(tmp_path)
    every = [*trial_columns(rows), *step_columns(rows), *eval_columns(rows), *sample_columns(rows)]
    assert [c.name for c in every if not c.meaning] == []
    assert {c.name for c in every if not c.unit} == NAMES | TEXT


def test_metrics_carry_the_registrys_name_unit_and_meaning(tmp_path: Path) -> None:
    steps = {c.name: c for c in step_columns(study(tmp_path))}
    known = METRICS["kl/exact_token"]
    assert steps["kl/exact_token"].unit == known.unit == "nats/token"
    assert steps["kl/exact_token"].meaning == known.meaning
    assert "eval/gold" not in steps


def test_units_of_the_setting_follow_the_study(tmp_path: Path) -> None:
    token = {c.name: c.unit for c in trial_columns(study(tmp_path))}
    assert token["target_kl"] == "nats/token"
    assert token["beta"] == "reward per nat of sequence KL"
    spec = {"kl_unit": "sequence", "beta_unit": "native"}
    other = {c.name: c.unit for c in trial_columns(study(tmp_path / "b", **spec))}
    assert other["target_kl"] == "nats/sequence"
    assert other["beta"] == "native coefficient"


def test_golds_beside_the_objectives_have_columns(tmp_path: Path) -> None:
    rows = study(tmp_path)
    assert other_golds(rows) == ("safety",)
    assert "gold_safety_peak" in {c.name for c in trial_columns(rows)}
    assert {"eval/gold_safety", "eval/gold_safety_se"} <= {c.name for c in eval_columns(rows)}
    assert "gold_safety" in {c.name for c in sample_columns(rows)}


def test_the_head_of_a_row_and_trls_names_are_no_metrics() -> None:
    assert not any(map(is_measured, ("trial", "step", "attempt", "time", "schema", "kl", "reward")))
    assert is_measured("kl/exact_seq")
    assert is_measured("eval/gold_safety")


def test_parts_of_a_weighted_proxy_have_columns_with_their_names(tmp_path: Path) -> None:
    parts = [{"function": "m:near", "weight": 1}, {"function": "m:short", "name": "brief"}]
    task = {"prompts": "p.jsonl", "gold": "m:good", "proxy": {"weighted": parts}}
    steps = {c.name: c for c in step_columns(study(tmp_path, task=task))}
    assert "train/part_near" in steps
    assert "brief" in steps["train/part_brief"].meaning
    assert is_measured("train/part_brief")
    assert not is_measured("train/part_")
