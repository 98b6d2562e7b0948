from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fake_study import FakeTrial, trial, write_study

from kltune.report.ranking import Ranking, rank
from kltune.report.rows import read_study

LOW, HIGH = (0.2, *[0.2] * 8), (0.2, *[0.9] * 8)


def ranking_of(tmp_path: Path, *fakes: FakeTrial) -> Ranking:
    return rank(read_study(write_study(tmp_path, list(fakes))))


def numbers(ranking: Ranking) -> list[list[int]]:
    return [[row.number for row in group] for group in ranking.groups]


def test_settings_that_differ_are_in_groups_and_equal_ones_share_one(tmp_path: Path) -> None:
    ranking = ranking_of(
        tmp_path, trial(0.2, gold=LOW), trial(0.3, gold=HIGH), trial(0.4, gold=HIGH)
    )
    assert numbers(ranking) == [[1, 2], [0]]
    assert [ranking.group_of(row) for row in ranking.compared] == [2, 1, 1]


def test_one_trial_or_none_is_ranked_without_a_comparison(tmp_path: Path) -> None:
    assert numbers(ranking_of(tmp_path / "none")) == []
    alone = ranking_of(tmp_path / "one", trial(0.2))
    assert numbers(alone) == [[0]]
    assert alone.most_below_best(alone.compared[0]) is None


def test_the_joint_interval_is_wider_than_that_of_a_pair_alone(tmp_path: Path) -> None:
    ranking = ranking_of(tmp_path, *[trial(beta, gold=HIGH) for beta in (0.1, 0.2, 0.3, 0.4, 0.5)])
    pair = rank(dataclasses.replace(study := read_study(tmp_path), trials=study.trials[:2]))
    a, b = ranking.compared[:2]
    joint, alone = ranking.difference(a, b), pair.difference(*pair.compared)
    assert joint is not None
    assert alone is not None
    assert joint.mean == pytest.approx(alone.mean)
    assert joint.high - joint.low > 1.2 * (alone.high - alone.low)


def test_a_trial_without_scores_by_prompt_is_named_and_not_compared(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1), trial(0.2), trial(0.3)]))
    bare = dataclasses.replace(
        study.trials[1],
        peak=dataclasses.replace(study.trials[1].peak, gold_by_prompt=()),  # type: ignore[type-var]
    )
    ranking = rank(dataclasses.replace(study, trials=(study.trials[0], bare, study.trials[2])))
    assert [row.number for row in ranking.left_out] == [1]
    assert sorted(row.number for group in ranking.groups for row in group) == [0, 2]
    assert ranking.difference(bare, study.trials[0]) is None


def test_repeats_give_the_noise_floor_and_are_no_candidates(tmp_path: Path) -> None:
    zeros = [trial(0.0, origin="zero", gold=HIGH)]
    zeros += [trial(0.0, origin=f"noise:{n}", gold=HIGH, seed=n) for n in range(1, 5)]
    ranking = ranking_of(tmp_path, *zeros, trial(0.3, gold=HIGH))
    assert numbers(ranking) == [[0, 5]]
    assert ranking.repeats is not None
    assert [row.setting.seed for row in ranking.repeats.trials] == [0, 1, 2, 3, 4]
    assert ranking.found is not None
    assert ranking.found.seed_df == 4
    assert ranking.pairing is not None
    assert ranking.pairing.num_pairs == 1
    assert ranking.shared is None


def test_the_same_setting_twice_on_one_seed_is_no_repeat(tmp_path: Path) -> None:
    ranking = ranking_of(tmp_path, trial(0.2), trial(0.2))
    assert ranking.repeats is None


def test_two_settings_on_the_same_seeds_give_their_correlation(tmp_path: Path) -> None:
    fakes = [trial(beta, seed=seed, gold=HIGH) for beta in (0.2, 0.4) for seed in range(4)]
    shared = ranking_of(tmp_path, *fakes).shared
    assert shared is not None
    assert shared.prompt is not None
    assert shared.prompt.low > 0  # the fake's prompts are harder or easier for every trial alike


def test_seeds_that_differ_much_join_what_prompts_would_part(tmp_path: Path) -> None:
    def levels(*golds: float) -> list[FakeTrial]:
        zeros = [
            trial(0.0, origin="zero" if n == 0 else f"noise:{n}", seed=n, gold=(0.2, *[gold] * 8))
            for n, gold in enumerate(golds)
        ]
        return [*zeros, trial(0.3, gold=HIGH)]

    calm = ranking_of(tmp_path / "calm", *levels(0.4, 0.4, 0.4, 0.4, 0.4))
    wild = ranking_of(tmp_path / "wild", *levels(0.4, 0.9, 0.1, 0.6, 0.0))
    assert numbers(calm) == [[5], [0]]
    assert numbers(wild) == [[0, 5]]
