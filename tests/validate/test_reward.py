from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_study import trial, write_study
from validate_case import confirmation

from kltune.confirm.result import Against
from kltune.grade import Grade
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, TrialRow, read_study
from kltune.validate.reward import Readings, gain_line, parted_line, repeat_line, score_kl_line

RISES = (0.2, 0.5, 0.8, 1.0, 1.1, 1.0, 0.9, 0.6, 0.3)


def study(folder: Path, gold: tuple[float, ...]) -> tuple[StudyRows, TrialRow]:
    found = read_study(write_study(folder / "study", [trial(0.05, gold=gold, noise=0.2)]))
    return found, found.trials[0]


def samples(slope: float, seed: int = 0, count: int = 24) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    kl = rng.gamma(4, 0.6, count)
    proxy = slope * (kl - kl.mean()) + rng.normal(0, 0.5, count)
    return [
        {
            "step": 10 + 10 * (i // 8),
            "kl_seq": float(k),
            "proxy": float(p),
            "gold": 1.0 + 0.1 * i % 3,
        }
        for i, (k, p) in enumerate(zip(kl, proxy, strict=True))
    ]


def test_score_that_is_bought_with_kl_is_warned_of_and_rarely_by_chance() -> None:
    assert score_kl_line(samples(1.0)).grade is Grade.WARN
    chance = sum(score_kl_line(samples(0.0, seed)).grade is Grade.WARN for seed in range(300))
    assert chance <= 17, f"{chance} of 300 without a relation were warned of; at most 5.7 %"


def test_what_training_time_brings_to_both_is_no_relation() -> None:
    rows = samples(0.0)
    for row in rows:
        row["kl_seq"] += row["step"]
        row["proxy"] += row["step"]
    assert score_kl_line(rows).grade is Grade.PASS


def test_too_few_completions_say_nothing() -> None:
    line = score_kl_line(samples(1.0, count=8))
    assert (line.grade, line.number) == (Grade.WARN, None)


def test_a_stop_at_the_peak_passes_and_says_what_comes_after(tmp_path: Path) -> None:
    _, row = study(tmp_path, RISES)
    line = parted_line(row, (40, 40))
    assert line.grade is Grade.PASS
    assert "Beyond it they part" in line.meaning


def test_a_stop_where_gold_has_fallen_while_proxy_rose_fails(tmp_path: Path) -> None:
    _, row = study(tmp_path, RISES)
    line = parted_line(row, (60, 80))
    assert line.grade is Grade.FAIL
    assert line.number == pytest.approx(0.3 - 1.1)
    assert "step 40" in line.action


def test_a_peak_at_the_last_evaluation_may_not_be_the_peak(tmp_path: Path) -> None:
    _, row = study(tmp_path, tuple(0.2 + 0.1 * i for i in range(9)))
    assert parted_line(row, (80, 80)).grade is Grade.WARN


def test_a_fall_within_the_noise_is_none(tmp_path: Path) -> None:
    _, row = study(tmp_path, (0.2, 0.5, 0.8, 1.0, 1.1, 1.095, 1.09, 0.6, 0.3))
    assert parted_line(row, (40, 60)).grade is Grade.PASS


@pytest.mark.parametrize(
    ("gold", "grade"),
    [
        (RISES, Grade.PASS),
        ((0.5,) * 9, Grade.WARN),
        ((0.5, *(-0.5,) * 8), Grade.FAIL),
    ],
)
def test_gold_must_rise_above_the_start(
    tmp_path: Path, gold: tuple[float, ...], grade: Grade
) -> None:
    found, row = study(tmp_path, gold)
    line = gain_line(found, row)
    assert line.grade is grade
    assert gain_line(found, replace(row, checkpoints=row.checkpoints[1:])).number is None


def test_the_recommended_stop_of_a_study_is_where_gold_and_proxy_have_not_parted(
    tmp_path: Path,
) -> None:
    found, _ = study(tmp_path, RISES)
    answer = recommend(found)
    assert isinstance(answer, Recommendation)
    stop = (answer.plateau.first_step, answer.plateau.last_step)
    assert parted_line(answer.best, stop).grade is not Grade.FAIL


def test_parting_late_in_the_window_is_warned_of_with_the_step_to_stop_at(tmp_path: Path) -> None:
    _, row = study(tmp_path, RISES)
    line = parted_line(row, (40, 60))
    assert line.grade is Grade.WARN
    assert line.action == "Stop at step 40, early in the window."


def test_whether_gold_goes_with_the_proxy_or_does_not_tell_is_said(tmp_path: Path) -> None:
    _, still = study(tmp_path / "still", (0.2, 0.5, 0.8, 1.0, 1.1, 1.095, 1.09, 0.6, 0.3))
    assert "Gold doesn't tell: up to step 60" in parted_line(still, (40, 60)).meaning
    _, up = study(tmp_path / "up", RISES)
    assert "Gold goes with the proxy: both rose up to step 40." in parted_line(up, (40, 40)).meaning


def test_the_gain_that_was_confirmed_on_test_goes_before_that_on_select(tmp_path: Path) -> None:
    found, row = study(tmp_path, RISES)
    assert "gold on select prompts" in gain_line(found, row).shown
    confirmed = confirmation(0)
    start = Against(1, "start", 0.05, -0.2, 0.3, 0.5, False, False, 2)
    main = replace(confirmed.main, against=(*confirmed.main.against, start))
    line = gain_line(found, row, replace(confirmed, judgements=(main,)))
    assert (line.grade, line.number) == (Grade.WARN, 0.05)
    assert line.shown == "+0.050 (-0.200 to +0.300) gold on test prompts"
    assert "3 fresh seeds and 256 test prompts" in line.meaning
    assert "select" in gain_line(found, row, confirmed).shown  # the start was not judged there


GOLD = (0.0, 1.0, 0.5, 1.5, -0.5)


def noisy(size: float) -> Readings:
    rng = np.random.default_rng(0)
    first, second = (tuple(np.array(GOLD) + rng.normal(0, size, 5)) for _ in range(2))
    return Readings(first, second, GOLD)


def test_gold_that_repeats_itself_passes() -> None:
    line = repeat_line(Readings(GOLD, GOLD, GOLD))
    assert (line.grade, line.number) == (Grade.PASS, 0.0)
    assert line.shown == "the same to the last digit"


def test_noise_of_gold_is_measured_and_fails_where_it_drowns_the_text() -> None:
    quiet, loud = repeat_line(noisy(0.1)), repeat_line(noisy(20.0))
    assert quiet.grade is Grade.WARN
    assert quiet.number is not None
    assert 0 < quiet.number < 0.5
    assert loud.grade is Grade.FAIL


def test_another_gold_than_the_study_was_judged_by_fails() -> None:
    changed = repeat_line(Readings(GOLD, GOLD, tuple(g + 0.25 for g in GOLD)))
    assert changed.grade is Grade.FAIL
    assert "another gold" in changed.meaning


def test_a_gold_that_can_not_score_fails_and_one_that_was_not_run_warns() -> None:
    broken = (math.nan, *GOLD[1:])
    assert repeat_line(Readings(broken, GOLD, GOLD)).grade is Grade.FAIL
    line = repeat_line("it was switched off (--no-gold)")
    assert line.grade is Grade.WARN
    assert "--no-gold" in line.meaning
