from __future__ import annotations

import json
from pathlib import Path

from fake_study import trial, typical_trials, write_study

from kltune.report.summary import summary
from kltune.trial.outcome import StopReason

FIELDS = {
    "number",
    "params",
    "state",
    "stop_reason",
    "feasible",
    "gold_start",
    "gold_peak",
    "gold_final",
    "gold_se",
    "kl_token",
    "kl_seq",
    "value",
    "origin",
    "steps",
}


def strict(data: object) -> None:
    json.dumps(data, allow_nan=False)


def test_a_typical_study_has_all_promised_fields(tmp_path: Path) -> None:
    data = summary(write_study(tmp_path, typical_trials()))
    strict(data)
    assert data["schema"] == 1
    assert data["study"] == "kitchen"
    assert data["report"] == str(tmp_path / "report.html")
    assert data["accounting"]["steps"]["trials_ended"] == 24
    assert len(data["trials"]) == 24
    for row in [*data["trials"], data["best"]]:
        assert set(row) >= FIELDS
    assert data["best"]["number"] in [row["number"] for row in data["trials"]]
    assert data["best"]["state"] == "complete"
    assert data["best"]["params"]["penalty"]
    assert data["runner_up"]["best_minus_this"]["paired_prompts"] == 64


def test_no_feasible_trial_is_a_null_best_with_advice(tmp_path: Path) -> None:
    data = summary(write_study(tmp_path, [trial(0.0)], objective={"kl_limit": 1e-3}))
    assert data["best"] is None
    assert data["recommendation"]["headline"].startswith("No feasible trial")
    assert data["trials"][0]["feasible"] is False


def test_a_trial_that_measured_nothing_is_all_null(tmp_path: Path) -> None:
    fake = trial(0.1, steps=0, reason=StopReason.ERROR, detail="boom")
    folder = write_study(tmp_path, [fake])
    (folder / "trials/00000/evals.jsonl").unlink()
    (row,) = summary(folder)["trials"]
    assert row["gold_peak"] is None
    assert row["kl_seq"] is None
    assert row["state"] == "failed"
    assert row["stop_reason"] == "error"


def test_a_non_finite_measurement_is_null_and_the_json_strict(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [trial(0.1)])
    path = folder / "trials/00000/evals.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines[-1]["eval/gold"] = None
    lines[-1]["gold_by_prompt"] = [None] * 64
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    data = summary(folder)
    strict(data)
    assert data["trials"][0]["gold_final"] is None
    assert data["best"]["number"] == 0


def test_what_the_guards_said_is_in_the_data(tmp_path: Path) -> None:
    said = [("truncation", 30, "60 % cut")]
    data = summary(write_study(tmp_path, [trial(0.1, warnings=said)]))
    strict(data)
    (row,) = data["trials"]
    assert row["warnings"] == [
        {"guard": "truncation", "detail": "60 % cut", "first_step": 25, "step": 30}
    ]
    assert [one["warned"] for one in data["guards"]["fired"]] == [[0]]
