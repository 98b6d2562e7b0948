from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kltune.metrics.jsonl import read_json, read_rows
from kltune.metrics.names import METRICS
from kltune.metrics.record import EvalMetrics, EvalSample, OtherGold, StepMetrics, TokenOutlier
from kltune.metrics.rows import other_golds
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.trial.folder import TrialFolder
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict
from kltune.trial.record import read_outliers


def _step(step: int, **values: float) -> StepMetrics:
    named = {key.replace("__", "/"): value for key, value in values.items()}
    return StepMetrics(0, 7, step, 0.01, 0.3, 0.5, 0.1, 640, is_finite=True, values=named)


def _eval(step: int) -> EvalMetrics:
    sample = EvalSample("p1", "How long?", "Ten minutes.", 0.5, 0.2, 1.5, 4, ended=True)
    return EvalMetrics(
        0, 7, step, 0.5, 0.1, 0.2, 0.1, 0.01, 0.3, (0.5, 0.5), (0.2, 0.2), {}, (sample, sample)
    )


def test_the_folder_is_named_by_the_trial_and_the_same_for_each_attempt(tmp_path: Path) -> None:
    assert TrialFolder(tmp_path, 7, 1).path == tmp_path / "trials" / "00007"
    assert TrialFolder(tmp_path, 7, 2).path == TrialFolder(tmp_path, 7, 1).path


def test_config_states_setting_and_units(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 2)
    setting = TrialSpec(beta=0.1, penalty=Penalty.K2_LOSS, learning_rate=1e-3)
    folder.write_config(setting, "tpe", 0.7, KLUnit.TOKEN, BetaUnit.REWARD)
    config = read_json(folder.path / "config.json")
    assert TrialSpec.model_validate(config["setting"]) == setting
    assert (config["trial"], config["attempt"], config["origin"]) == (7, 2, "tpe")
    assert (config["sigma_r"], config["kl_unit"], config["beta_unit"]) == (0.7, "token", "reward")
    assert config["started_at"].endswith("+00:00")


def test_a_step_row_has_our_names_and_trls(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 1)
    folder.append_step(_step(1, kl__k3_token=0.02))
    row = read_rows(folder.path / "metrics.jsonl")[0]
    assert (row["trial"], row["attempt"], row["step"]) == (7, 1, 1)
    assert row["kl/exact_token"] == 0.01
    assert row["kl/exact_seq"] == 0.3
    assert row["kl"] == row["kl/k3_token"] == 0.02
    assert row["reward"] == row["train/proxy_mean"] == 0.5


def test_an_unregistered_metric_is_refused_and_nothing_written(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 1)
    with pytest.raises(ValueError, match="kl/token"):
        folder.append_step(_step(1, kl__token=0.1))
    assert read_rows(folder.path / "metrics.jsonl") == []


def test_a_non_finite_metric_is_null_and_named(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 1)
    folder.append_step(_step(1, train__loss=math.nan))
    row = read_rows(folder.path / "metrics.jsonl")[0]
    assert row["train/loss"] is None
    assert row["non_finite"] == ["train/loss"]


def test_outlier_tokens_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 2)
    outlier = TokenOutlier("p1", 3, "\n", "<b>", "lid", math.inf, -0.1, -7.0)
    folder.append_eval(_eval(10))
    assert not (folder.path / "outliers.jsonl").exists()
    folder.append_eval(replace(_eval(20), outliers=(outlier, replace(outlier, kl=2.0))))
    first, second = read_rows(folder.path / "outliers.jsonl")
    assert (first["trial"], first["attempt"], first["step"]) == (7, 2, 20)
    assert (first["token"], first["before"], first["after"]) == ("\n", "<b>", "lid")
    assert first["kl"] is None
    assert first["non_finite"] == ["kl"]
    assert second["kl"] == 2.0
    assert [row["kl"] for row in read_outliers(folder.path, 20)] == [None, 2.0]
    assert read_outliers(folder.path, 10) == []


def test_an_evaluation_writes_its_row_and_its_samples(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 1)
    folder.append_eval(_eval(10))
    row = read_rows(folder.path / "evals.jsonl")[0]
    assert row["eval/gold"] == 0.5
    assert row["gold_by_prompt"] == [0.5, 0.5]
    samples = read_rows(folder.path / "samples.jsonl")
    assert len(samples) == 2
    assert samples[0]["completion"] == "Ten minutes."
    assert (samples[0]["step"], samples[0]["attempt"]) == (10, 1)


def test_the_outcome_is_an_event_with_the_verdicts_own_words(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 1)
    folder.append_event("started", 0)
    verdict = Verdict(StopReason.KL_LIMIT, "kl 0.612 > 0.5 nats/token for 3 steps")
    folder.append_outcome(TrialOutcome(7, 1, verdict, 33, 0.4, True, -0.1, 20))
    started, ended = read_rows(folder.path / "events.jsonl")
    assert started["event"] == "started"
    assert ended["detail"] == verdict.detail
    assert (ended["reason"], ended["state"], ended["steps_run"]) == ("kl_limit", "complete", 33)
    assert (ended["feasible"], ended["best_step"]) == (True, 20)


def test_recording_takes_about_a_millisecond_at_most(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 1)
    values = {m.name.replace("/", "__"): 0.123456789 for m in METRICS.values() if m.scope == "step"}
    spent: list[float] = []
    for step in range(30):
        start = time.thread_time()
        folder.append_step(_step(step, **values))
        spent.append(time.thread_time() - start)
    assert sorted(spent)[15] < 1e-3


def test_a_crash_between_two_renames_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 0, 1)
    assert folder.checkpoint_to_resume() is None
    before = folder.last_checkpoint.with_name("last.old")
    before.mkdir(parents=True)
    assert folder.checkpoint_to_resume() == before
    folder.last_checkpoint.mkdir()
    assert folder.checkpoint_to_resume() == folder.last_checkpoint


def test_further_golds_are_written_and_read_back(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 1)
    plain = _eval(5)
    sample = replace(plain.samples[0], golds={"tone": 0.25})
    other = OtherGold(0.3, 0.02, (0.25, 0.35))
    folder.append_eval(replace(plain, samples=(sample,), others={"tone": other}))
    row = read_rows(folder.path / "evals.jsonl")[0]
    assert row["golds_by_prompt"] == {"tone": [0.25, 0.35]}
    assert (row["eval/gold_tone"], row["eval/gold_tone_se"]) == (0.3, 0.02)
    assert read_rows(folder.path / "samples.jsonl")[0]["golds"] == {"tone": 0.25}
    assert other_golds(row) == {"tone": other}


def test_a_study_with_one_gold_writes_what_it_always_wrote(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 1)
    folder.append_eval(_eval(5))
    row = read_rows(folder.path / "evals.jsonl")[0]
    assert "golds_by_prompt" not in row
    assert "golds" not in read_rows(folder.path / "samples.jsonl")[0]
    assert other_golds(row) == {}


def test_runs_of_a_confirmation_lie_under_a_name_of_their_own(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 7, 1, under="runs")
    assert folder.path == tmp_path / "runs" / "00007"
    assert TrialFolder(tmp_path, 7, 1).path == tmp_path / "trials" / "00007"
