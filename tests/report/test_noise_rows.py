from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_study import trial, typical_trials, write_study

from kltune.report.noise_rows import kept_index, measure_noise
from kltune.report.rows import read_study


def test_noise_is_that_of_the_feasible_trials(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "study", typical_trials()))
    found = measure_noise(study)
    assert found is not None
    assert found.prompts == 64
    assert found.num_settings > 3
    # Each trial's gold has its own noise of 0.35 on a prompt, those of the prompts are shared.
    assert found.pair == pytest.approx(2 * 0.35**2, rel=0.2)
    assert found.seeds is None
    assert found.between is None


def test_samples_are_told_from_prompts_by_what_was_kept(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "study", typical_trials()))
    # The fake study keeps each prompt's mean as its first sample: samples don't vary.
    found = measure_noise(study)
    assert found is not None
    assert found.sample is not None
    one = study.spec.evaluate.model_copy(update={"samples": 1})
    single = measure_noise(replace(study, spec=study.spec.model_copy(update={"evaluate": one})))
    assert single is not None
    assert single.sample is None


def test_one_trial_gives_what_prompts_vary_by(tmp_path: Path) -> None:
    found = measure_noise(read_study(write_study(tmp_path / "study", [trial(0.1)])))
    assert found is not None
    assert found.pair is None
    assert found.between is not None
    assert found.between > 0


def test_a_study_without_trials_says_nothing(tmp_path: Path) -> None:
    assert measure_noise(read_study(write_study(tmp_path / "study", []))) is None


def test_settings_on_several_seeds_measure_the_seed_noise(tmp_path: Path) -> None:
    trials = [trial(beta, seed=seed) for beta in (0.05, 0.2) for seed in range(4)]
    found = measure_noise(read_study(write_study(tmp_path / "study", trials)))
    assert found is not None
    assert found.seeds is not None
    assert "2 settings on 4 seeds" in found.seeds.words
    assert found.num_settings == 2, "a repeat is no other setting"


def test_the_runs_of_a_confirmation_count_as_repeats(tmp_path: Path) -> None:
    path = write_study(tmp_path / "study", [trial(0.05), trial(0.2)])
    runs = [trial(beta, seed=seed) for beta in (0.05, 0.2) for seed in (7, 8, 9)]
    other = write_study(tmp_path / "other", runs)
    shutil.copytree(other / "trials", path / "confirm" / "runs")
    found = measure_noise(read_study(path))
    assert found is not None
    assert found.seeds is not None
    assert "2 settings on 3 seeds" in found.seeds.words


def test_the_kept_prompts_are_those_that_the_trainer_keeps() -> None:
    from kltune.trainer.data import spread_evenly

    for prompts, kept in ((64, 8), (78, 8), (5, 5), (10, 3)):
        places = [kept_index(i, kept, prompts) for i in range(kept)]
        assert places == spread_evenly(prompts, kept)


def test_the_variance_of_a_pair_is_the_mean_over_all_pairs() -> None:
    from itertools import combinations

    from kltune.report.noise_rows import _pair_variance

    gold_NP = np.random.default_rng(0).normal(size=(5, 20))
    pairs = [(a - b).var(ddof=1) for a, b in combinations(gold_NP, 2)]
    assert _pair_variance(gold_NP) == pytest.approx(np.mean(pairs))
