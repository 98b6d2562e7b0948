from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fake_study import SPEC, trial, write_study

from kltune.report.compare import (
    is_beta_raw,
    overoptimisation,
    penalty_to_spread,
    plateau,
    prompt_scores,
    spread_ratio,
    value_difference,
    value_interval,
    value_words,
    worst_overoptimised,
)
from kltune.report.rows import TrialRow, read_study
from kltune.spec.study import ObjectiveSpec
from kltune.spec.trial import KLUnit
from kltune.statistics.contrast import mean_interval

PEAK = ObjectiveSpec(metric="gold_peak", kl_limit=0.5)
FLAT = (0.2, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
HUMP = (0.2, 0.4, 0.9, 0.9, 0.5, 0.3, 0.2, 0.1, 0.0)


def rows_of(tmp_path: Path, *fakes: object) -> tuple[TrialRow, ...]:
    return read_study(write_study(tmp_path, list(fakes))).trials  # type: ignore[arg-type]


def test_prompts_that_vary_alike_tell_a_small_difference_apart(tmp_path: Path) -> None:
    a, b = rows_of(
        tmp_path,
        trial(0.2, gold=FLAT, noise=0.02),
        trial(0.2, gold=[g - 0.05 for g in FLAT], noise=0.02),
    )
    difference = value_difference(a, b, PEAK, KLUnit.TOKEN)
    assert difference is not None
    assert difference.num_prompts == 64
    assert difference.is_told_apart
    assert difference.low < 0.05 < difference.high
    assert difference.high - difference.low < 0.05  # prompts alone vary by 0.3 / 8, far more


def test_noise_of_prompts_hides_a_small_difference(tmp_path: Path) -> None:
    a, b = rows_of(tmp_path, trial(0.2, gold=FLAT), trial(0.2, gold=[g - 0.02 for g in FLAT]))
    difference = value_difference(a, b, PEAK, KLUnit.TOKEN)
    assert difference is not None
    assert not difference.is_told_apart


def test_the_interval_is_centred_on_the_told_values(tmp_path: Path) -> None:
    a, b = rows_of(tmp_path, trial(0.2, gold=FLAT, value=0.7), trial(0.2, gold=FLAT, value=0.4))
    difference = value_difference(a, b, PEAK, KLUnit.TOKEN)
    assert difference is not None
    assert difference.mean == pytest.approx(0.3)
    assert (difference.low + difference.high) / 2 == pytest.approx(0.3)


def test_without_prompts_in_common_nothing_is_compared(tmp_path: Path) -> None:
    a, b = rows_of(tmp_path, trial(0.2), trial(0.2))
    assert a.peak is not None
    short = dataclasses.replace(a, peak=dataclasses.replace(a.peak, gold_by_prompt=(0.1, 0.2)))
    assert value_difference(short, b, PEAK, KLUnit.TOKEN) is None


def test_gold_final_is_compared_at_the_last_two_evaluations(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, trial(0.2, gold=HUMP))
    scores = prompt_scores(row, ObjectiveSpec(metric="gold_final"), KLUnit.TOKEN)
    assert scores is not None
    assert float(scores.mean()) == pytest.approx(0.05)


def test_the_window_to_stop_in_is_unbroken_and_evaluations_beyond_a_break_do_not_widen_it(
    tmp_path: Path,
) -> None:
    gold = (0.2, 0.5, 0.9, 0.89, 0.5, 0.9, 0.5, 0.4, 0.3)
    (row,) = rows_of(tmp_path, trial(1.0, gold=gold))
    found = plateau(row, PEAK, KLUnit.TOKEN)
    assert found is not None
    assert (found.first_step, found.last_step) == (20, 30)
    assert (found.width, found.total) == (2, 8)


def test_an_evaluation_over_the_kl_limit_does_not_widen_the_plateau(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, trial(0.0, gold=FLAT))
    wide = plateau(row, ObjectiveSpec(), KLUnit.TOKEN)
    held = plateau(row, ObjectiveSpec(kl_limit=0.3), KLUnit.TOKEN)
    assert wide is not None
    assert held is not None
    assert held.width < wide.width


def test_gold_that_falls_while_the_proxy_rises_is_overoptimised(tmp_path: Path) -> None:
    falls, holds = rows_of(tmp_path, trial(0.0, gold=HUMP), trial(0.5, gold=sorted(HUMP)))
    assert overoptimisation(falls) == pytest.approx(0.9)
    assert overoptimisation(holds) is None
    assert worst_overoptimised((holds, falls)) is falls


def test_gold_that_falls_with_the_proxy_is_not_overoptimised(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, trial(0.0, gold=HUMP))
    sunk = dataclasses.replace(
        row, checkpoints=tuple(dataclasses.replace(c, proxy=-c.step) for c in row.checkpoints)
    )
    assert overoptimisation(sunk) is None


def test_a_penalty_far_above_the_reward_spread_shows_as_a_ratio(tmp_path: Path) -> None:
    # field case E3: spread 1e-4, penalty 0.5
    (row,) = rows_of(tmp_path, trial(0.1))
    curve = dataclasses.replace(row.curve, beta=(0.1, 0.1), kl_seq=(5.0, 5.0))
    tiny = dataclasses.replace(row, sigma_r=1e-4, curve=curve)
    assert penalty_to_spread(tiny, is_beta_in_reward=True) == pytest.approx(5000)
    assert penalty_to_spread(tiny, is_beta_in_reward=False) == pytest.approx(0.5)
    assert (
        penalty_to_spread(dataclasses.replace(tiny, sigma_r=None), is_beta_in_reward=True) is None
    )


@pytest.mark.parametrize("metric", ["gold_peak", "gold_final", "gold_mean"])
@pytest.mark.parametrize("limit", [None, 0.05])
def test_the_mean_of_the_prompts_scores_is_the_told_value(
    tmp_path: Path, metric: str, limit: float | None
) -> None:
    objective = {"metric": metric, "kl_limit": limit}
    fakes = [trial(beta, gold=HUMP, noise=0.9) for beta in (0.05, 0.2, 0.5)]
    study = read_study(write_study(tmp_path, fakes, objective=objective))
    for row in study.trials:
        scores = prompt_scores(row, study.spec.objective, study.spec.kl_unit)
        assert scores is not None
        assert float(scores.mean()) == pytest.approx(row.value)


def test_width_is_that_of_the_corrected_peaks_and_not_of_the_peaks(tmp_path: Path) -> None:
    # The peaks are the same evaluation, prompt by prompt; the halves choose other steps.
    flat = (0.2, *[0.5] * 8)
    a, b = rows_of(tmp_path, trial(0.2, gold=flat, noise=0.9), trial(0.2, gold=flat, noise=0.9))
    assert a.peak is not None
    shared = tuple(a.peak if c.step == a.peak.step else c for c in b.checkpoints)
    twin = dataclasses.replace(b, checkpoints=shared, peak=a.peak)
    difference = value_difference(a, twin, PEAK, KLUnit.TOKEN)
    assert difference is not None
    assert difference.high - difference.low > 0.1
    assert not difference.is_told_apart


def shifted(row: TrialRow, by: list[float], value: float) -> TrialRow:
    points = tuple(
        dataclasses.replace(
            c, gold_by_prompt=tuple(g - x for g, x in zip(c.gold_by_prompt, by, strict=True))
        )
        for c in row.checkpoints
    )
    peak = next(c for c in points if row.peak is not None and c.step == row.peak.step)
    assert row.outcome is not None
    told = dataclasses.replace(row.outcome, value=value)
    return dataclasses.replace(row, checkpoints=points, peak=peak, outcome=told)


@pytest.mark.parametrize(
    ("by", "doubt"),
    [
        ([0.0] * 64, ": only 0 of 64 prompts differ, so the prompts can't tell"),
        ([9.0, 9.0, *[0.0] * 62], ": only 2 of 64 prompts differ, so the prompts can't tell"),
        ([0.3] * 64, ": all prompts differ by the same, which says nothing of their noise"),
    ],
)
def test_prompts_without_a_spread_never_tell_apart(
    tmp_path: Path, by: list[float], doubt: str
) -> None:
    (row,) = rows_of(tmp_path, trial(0.2, gold=FLAT, value=0.5))
    difference = value_difference(row, shifted(row, by, -9.0), PEAK, KLUnit.TOKEN)
    assert difference is not None
    assert difference.low > 0
    assert not difference.is_told_apart
    assert difference.doubt == doubt


def test_a_price_of_the_mean_is_weighed_with_the_mean_kl(tmp_path: Path) -> None:
    trainer = {**SPEC["trainer"], "kl": {"credit": "length-mean"}}
    fakes = [trial(0.1, penalty="k1-reward"), trial(0.1)]
    study = read_study(write_study(tmp_path, fakes, trainer=trainer))
    paid, lossy = (
        dataclasses.replace(
            row,
            sigma_r=0.5,
            curve=dataclasses.replace(row.curve, beta=(0.1,), kl_token=(0.4,), kl_seq=(5.0,)),
        )
        for row in study.trials
    )
    assert spread_ratio(study, paid) == pytest.approx(0.1 * 0.4 / 0.5)
    assert spread_ratio(study, lossy) == pytest.approx(0.1 * 5.0 / 0.5)


def test_a_penalty_is_weighed_by_the_kl_to_the_moving_reference(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, trial(0.1))
    curve = dataclasses.replace(row.curve, beta=(0.1,), kl_seq=(5.0,), anchor_seq=(2.0,))
    near = dataclasses.replace(row, sigma_r=0.5, curve=curve)
    assert penalty_to_spread(near, is_beta_in_reward=True) == pytest.approx(0.1 * 2.0 / 0.5)


def test_a_native_beta_beside_unwhitened_ppo_advantages_is_raw_reward(tmp_path: Path) -> None:
    for whiten in (True, False):
        trainer = {**SPEC["trainer"], "algorithm": "ppo", "critic": {"whiten": whiten}}
        folder = tmp_path / str(whiten)
        spec = read_study(write_study(folder, [], trainer=trainer, beta_unit="native")).spec
        assert is_beta_raw(spec) is not whiten


def test_the_interval_of_a_value_is_that_of_every_comparison(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, trial(0.2, gold=HUMP, noise=0.9))
    scores = prompt_scores(row, PEAK, KLUnit.TOKEN)
    assert scores is not None
    assert value_interval(row, PEAK, KLUnit.TOKEN) == pytest.approx(mean_interval(scores))
    unknown = dataclasses.replace(row, peak=None)
    assert value_interval(unknown, PEAK, KLUnit.TOKEN) is None


def first_prompts(row: TrialRow, num: int) -> TrialRow:
    points = tuple(
        dataclasses.replace(c, gold_by_prompt=c.gold_by_prompt[:num]) for c in row.checkpoints
    )
    assert row.peak is not None
    peak = dataclasses.replace(row.peak, gold_by_prompt=row.peak.gold_by_prompt[:num])
    return dataclasses.replace(row, checkpoints=points, peak=peak)


def test_below_eight_prompts_there_is_no_interval_and_nothing_is_told_apart(tmp_path: Path) -> None:
    good, bad = rows_of(
        tmp_path, trial(0.2, gold=[g + 9 for g in FLAT]), trial(0.2, gold=FLAT, noise=0.02)
    )
    few, other = first_prompts(good, 7), first_prompts(bad, 7)
    assert value_interval(few, PEAK, KLUnit.TOKEN) is None
    assert value_words(few, PEAK, KLUnit.TOKEN) == "7 prompts are too few for an interval"
    difference = value_difference(few, other, PEAK, KLUnit.TOKEN)
    assert difference is not None
    assert difference.interval == "7 prompts are too few for an interval"
    assert difference.low > 0
    assert not difference.is_told_apart
    enough = value_difference(first_prompts(good, 8), first_prompts(bad, 8), PEAK, KLUnit.TOKEN)
    assert enough is not None
    assert enough.is_told_apart
    assert enough.interval.startswith("95 % interval")


def test_prompts_that_are_all_equal_give_no_interval(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, trial(0.2, gold=FLAT, noise=0.0))
    same = tuple(dataclasses.replace(c, gold_by_prompt=(c.gold,) * 64) for c in row.checkpoints)
    peak = next(c for c in same if row.peak is not None and c.step == row.peak.step)
    flat = dataclasses.replace(row, checkpoints=same, peak=peak)
    assert value_interval(flat, PEAK, KLUnit.TOKEN) is None
    assert value_words(flat, PEAK, KLUnit.TOKEN) == "all 64 prompts equal: no interval"
    difference = value_difference(flat, flat, PEAK, KLUnit.TOKEN)
    assert difference is not None
    assert difference.interval == "all 64 prompts equal: no interval"


def test_a_fall_within_the_prompts_noise_is_no_overoptimisation(tmp_path: Path) -> None:
    slight = (0.2, 0.3, 0.4, 0.5, 0.6, 0.6, 0.6, 0.6, 0.58)
    (row,) = rows_of(tmp_path, trial(0.0, gold=slight))
    assert overoptimisation(row) is not None
    assert worst_overoptimised((row,)) is None
    (clear,) = rows_of(tmp_path / "b", trial(0.0, gold=HUMP))
    assert worst_overoptimised((row, clear)) is clear
    assert worst_overoptimised((first_prompts(clear, 7),)) is None
