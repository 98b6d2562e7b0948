from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_study import SPEC, FakeTrial, trial, write_study

from kltune.metrics.jsonl import encode
from kltune.report.build import build_report
from kltune.report.controller_blocks import (
    controller_blocks,
    controller_data,
    lag_words,
    missed_words,
)
from kltune.report.controllers import Lag
from kltune.report.document import Bullets, Grid
from kltune.report.rows import StudyRows, TrialRow, read_study
from kltune.report.summary import trial_data


def read(folder: Path, *fakes: FakeTrial, **spec: Any) -> StudyRows:
    return read_study(write_study(folder, fakes, **spec))


def steered(**fields: Any) -> FakeTrial:
    given = {"controller": "proportional", "target_kl": 0.05, "horizon": 640, **fields}
    return trial(0.1, **given)


def with_curve(row: TrialRow, kl: list[float], beta: list[float], target: list[float]) -> TrialRow:
    curve = replace(
        row.curve,
        step=tuple(range(1, len(kl) + 1)),
        kl_token=tuple(kl),
        kl_seq=tuple(14 * value for value in kl),
        beta=tuple(beta),
        target=tuple(target),
    )
    return replace(row, curve=curve)


def parts(study: StudyRows) -> tuple[Bullets, Grid]:
    blocks = controller_blocks(study)
    assert isinstance(blocks[0], Bullets)
    assert isinstance(blocks[1], Grid)
    return blocks[0], blocks[1]


def test_fixed_betas_have_no_section(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.1), trial(0.0))
    assert controller_blocks(study) == ()
    assert controller_data(study, study.trials[0]) is None


def test_every_steered_trial_is_a_row_and_every_verdict_a_line(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.1), steered(horizon=1e6), steered(horizon=1e6), steered(steps=5))
    bullets, grid = parts(study)
    assert bullets.items == (
        "Can't be told: trial 3. Fewer than 10 steps with a target say nothing.",
        "Inert: trials 1, 2. Beta moved by less than 10 %, so these trials are like ones with a fixed beta.",
    )
    assert [row[0] for row in grid.rows] == ["1", "2", "3"]
    assert grid.rows[0][2].startswith("inert (beta moved by a factor of 1")
    assert all(len(row) == len(grid.header) for row in grid.rows)


def test_a_long_list_of_trials_is_cut(tmp_path: Path) -> None:
    bullets, grid = parts(read(tmp_path, *[steered(steps=3)] * 15))
    assert "trials 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 3 more." in bullets.items[0]
    assert len(grid.rows) == 15


def test_a_scheduled_trial_is_named_without_a_verdict(tmp_path: Path) -> None:
    scheduled = trial(0.1, controller="schedule")
    search = {"beta": 0.1, "controller": "schedule"}
    control = {"schedule": [[0, 0.25], [0.1, 1]]}
    study = read(tmp_path, scheduled, search=search, control=control)
    assert controller_blocks(study) == (
        Bullets(("Scheduled: trial 0. Beta follows the steps, whatever KL does.",)),
    )


def test_kl_is_taken_in_the_unit_of_the_target(tmp_path: Path) -> None:
    kl, beta = [0.051] * 30, [1.02**step for step in range(30)]
    for unit, target in (("token", 0.05), ("sequence", 0.7)):
        study = read(tmp_path / unit, steered(target_kl=target), kl_unit=unit)
        row = with_curve(study.trials[0], kl, beta, [target] * 30)
        data = controller_data(study, row)
        assert data is not None
        assert data["end_ratio"] == pytest.approx(1.02)
        assert data["verdict"] == "holds the target"


def test_the_arrival_is_a_step_of_the_record(tmp_path: Path) -> None:
    study = read(tmp_path, steered())
    nan = float("nan")
    kl = [0.0, 0.01, 0.02, 0.03, 0.042, *[0.051] * 20]
    target = [nan, nan, *[0.05] * 23]
    row = with_curve(study.trials[0], kl, [1.02**step for step in range(25)], target)
    data = controller_data(study, row)
    assert data is not None
    assert data["arrival_step"] == 5  # .042 is within a factor of 1.2 of .05
    assert data["num_steps"] == 23


@pytest.mark.parametrize(
    ("lag", "words"),
    [
        (None, "can't be told: too few steps or moves"),
        (Lag(3, -0.8, -0.1, 0.2, is_longest=False), "3 steps (r −0.80, noise 0.20)"),
        (Lag(1, -0.8, -0.1, 0.2, is_longest=False), "1 step (r −0.80, noise 0.20)"),
        (Lag(3, -0.1, 0.1, 0.2, is_longest=False), "can't be told (r −0.10, noise 0.20)"),
        (
            Lag(3, -0.8, -0.7, 0.2, is_longest=False),
            "can't be told (r −0.80, noise 0.20; as strong at the same step)",
        ),
        (
            Lag(30, -0.8, 0.0, 0.2, is_longest=True),
            "can't be told (r −0.80, noise 0.20; 30 steps is the most looked at)",
        ),
    ],
)
def test_an_answer_that_does_not_stand_out_says_why(lag: Lag | None, words: str) -> None:
    assert lag_words(lag) == words


def test_the_data_is_strict_json_beside_the_trials_other_numbers(tmp_path: Path) -> None:
    study = read(tmp_path, steered(), trial(0.1))
    found = trial_data(study, study.trials[0])["controller"]
    assert json.loads(encode(found))["verdict"] == found["verdict"]
    assert trial_data(study, study.trials[1])["controller"] is None


def test_a_rule_with_a_dead_band_is_judged_by_it(tmp_path: Path) -> None:
    study = read(tmp_path, steered(controller="threshold-1.5x", horizon=None))
    kl, beta = [0.05 / 1.45] * 30, [0.98**step for step in range(30)]
    data = controller_data(study, with_curve(study.trials[0], kl, beta, [0.05] * 30))
    assert data is not None
    assert data["verdict"] == "holds the target"


def test_all_three_twins_carry_the_section(tmp_path: Path) -> None:
    paths = build_report(write_study(tmp_path, [steered(), trial(0.2)]))
    for path in (paths.html, paths.markdown):
        assert "How the controllers behaved" in path.read_text(encoding="utf-8")
    data = json.loads(paths.json.read_text(encoding="utf-8"))
    assert data["trials"][0]["controller"]["verdict"]


def test_a_controller_is_judged_by_the_kl_that_it_acts_on(tmp_path: Path) -> None:
    trainer = {**SPEC["trainer"], "reference": {"every": 20}}
    folder = write_study(tmp_path, [steered()], trainer=trainer)
    path = folder / "trials" / "00000" / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    # KL to the start passes the target and runs away; that to the moving reference stays below.
    text = [json.dumps({**row, "kl/anchor_token": 0.01, "kl/anchor_seq": 0.14}) for row in rows]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    study = read_study(folder)
    (row,) = study.trials
    found = controller_data(study, row)
    assert found is not None
    assert found["end_ratio"] == pytest.approx(0.2)
    shown = str(controller_blocks(study))
    assert "moving reference (kl/anchor)" in shown
    assert "moving reference" not in str(controller_blocks(read(tmp_path / "still", steered())))


def test_a_missed_target_is_told_by_a_number_that_says_what_it_is(tmp_path: Path) -> None:
    study = read(tmp_path, steered())
    target, beta = [0.05] * 60, [0.1 + 0.01 * n for n in range(60)]
    missed = with_curve(study.trials[0], [0.05] * 30 + [0.08] * 30, beta, target)
    held = with_curve(study.trials[0], [0.055] * 60, beta, target)
    words = ", which KL missed (median over the trial's last 6 steps: 1.6 × that)"
    assert missed_words(study, missed) == words
    assert missed_words(study, held) == ""


def test_the_median_of_the_last_steps_is_not_sold_as_the_kl_at_the_end(tmp_path: Path) -> None:
    study = read(tmp_path, steered())
    kl = [0.001 * 1.3**n for n in range(12)]  # still on its way when the trial ends
    row = with_curve(study.trials[0], kl, [0.1 * 0.9**n for n in range(12)], [0.05] * 12)
    data = controller_data(study, row)
    assert data is not None
    assert (data["end_steps"], data["end_ratio"]) == (5, pytest.approx(kl[9] / 0.05))
    grid = parts(replace(study, trials=(row,)))[1]
    said = "never arrives (KL was 0.212 × target, median over the trial's last 5 steps)"
    assert grid.rows[0][2] == said
    assert "KL / target over the last steps" in grid.header
    assert "ended at" not in str(controller_blocks(replace(study, trials=(row,))))
