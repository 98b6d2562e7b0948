from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from fake_study import trial, typical_trials, write_study

from kltune.report.document import Sheet
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.report.sheets import MOST_POINTS, sheets
from kltune.trial.outcome import StopReason


def study_of(path: Path) -> StudyRows:
    return read_study(write_study(path / "kitchen", typical_trials()))


def facts(sheet: Sheet) -> dict[str, str]:
    return dict(sheet.facts)


def test_every_trial_has_a_sheet_that_says_what_its_row_does(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    answer = recommend(study)
    found = sheets(study, answer)
    assert [sheet.number for sheet in found] == [row.number for row in study.trials]
    assert isinstance(answer, Recommendation)
    best = found[answer.best.number]
    assert facts(best)["Standing"] == "recommended"
    assert f"{answer.best.value:.3f} gold" in facts(best)["Value"]
    peak = answer.best.peak
    assert peak is not None
    words = facts(best)[f"At the peak, step {peak.step}"]
    assert f"gold {peak.gold:.3f} ± {peak.gold_se:.3f}" in words
    assert "nats/token" in words
    assert "nats/sequence" in words
    assert "reward per nat" in facts(best)["Setting"]


def test_how_it_ended_is_in_the_guards_own_words(tmp_path: Path) -> None:
    detail = "gold fell from 1.03 to 0.408"
    warned = (("entropy_collapse", 30, "entropy fell by 80 %"),)
    ended = trial(0.1, reason=StopReason.GOLD_DROP, steps=40, detail=detail, warnings=warned)
    study = read_study(write_study(tmp_path / "kitchen", [ended, trial(0.2)]))
    first = facts(sheets(study, recommend(study))[0])
    assert first["How it ended"] == f"gold_drop, 40 of 80 steps: {detail}"
    assert first["Warned by entropy_collapse"].endswith("entropy fell by 80 %")


def test_the_commands_name_study_and_trial(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    replay, export = sheets(study, recommend(study))[5].commands
    assert replay == "kltune replay kitchen --trial 5"
    assert export.startswith("kltune export kitchen --to ")
    assert export.endswith("--trial 5")
    assert str(tmp_path) not in replay + export


def test_curves_are_those_of_the_record_with_gaps_for_what_is_not_finite(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    row = study.trials[4]
    curve = dataclasses.replace(row.curve, kl_token=(math.nan, *row.curve.kl_token[1:]))
    study = dataclasses.replace(study, trials=(dataclasses.replace(row, curve=curve),))
    (sheet,) = sheets(study, recommend(study))
    found = sheet.curves
    assert found["kl"][0] is None
    assert list(found["kl"][1:]) == pytest.approx(row.curve.kl_token[1:], rel=1e-3)
    assert list(found["gold"]) == pytest.approx([c.gold for c in row.checkpoints], rel=1e-3)
    assert list(found["eval_step"]) == [c.step for c in row.checkpoints]
    json.dumps(dataclasses.asdict(sheet), allow_nan=False)


def test_a_thousand_long_trials_stay_below_3_mb_and_keep_their_peaks(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "kitchen", [trial(0.1)]))
    (row,) = study.trials
    long = dataclasses.replace(
        row.curve,
        **{
            name: tuple(getattr(row.curve, name)) * 10
            for name in ("step", "kl_token", "beta", "target")
        },
    )
    points = tuple(dataclasses.replace(c, step=n) for n, c in enumerate(row.checkpoints * 40))
    peak = points[101]
    many = tuple(
        dataclasses.replace(row, number=n, curve=long, checkpoints=points, peak=peak)
        for n in range(1000)
    )
    answer = recommend(study)
    found = sheets(dataclasses.replace(study, trials=many), answer)
    text = json.dumps([dataclasses.asdict(sheet) for sheet in found], separators=(",", ":"))
    assert len(text) < 3_000_000
    assert all(101 in sheet.curves["eval_step"] for sheet in found)
    (alone,) = sheets(dataclasses.replace(study, trials=many[:1]), answer)
    assert len(alone.curves["step"]) == MOST_POINTS


def test_a_very_long_error_is_cut_with_the_count_said(tmp_path: Path) -> None:
    failed = trial(0.1, reason=StopReason.ERROR, steps=10, detail="x" * 9000)
    study = read_study(write_study(tmp_path / "kitchen", [failed]))
    words = facts(sheets(study, recommend(study))[0])["How it ended"]
    assert len(words) < 1600
    assert words.endswith("more characters)")


def test_a_steered_trial_has_its_target_and_whether_kl_was_held_there(tmp_path: Path) -> None:
    steered = trial(0.1, controller="proportional", target_kl=0.05, horizon=640)
    study = read_study(write_study(tmp_path / "kitchen", [steered, trial(0.1)]))
    with_one, without = sheets(study, recommend(study))
    assert set(with_one.curves["target"]) == {0.05}
    assert facts(with_one)["Target"].startswith("0.05 nats/token; ")
    assert "target" not in without.curves
    assert "Target" not in facts(without)
