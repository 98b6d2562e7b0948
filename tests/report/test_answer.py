from __future__ import annotations

from pathlib import Path

import pytest
from fake_study import SIGMA_R, trial, typical_trials, write_study

from kltune.report.answer import (
    answer_facts,
    headline,
    native_words,
)
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.spec.penalty import Penalty


def read(tmp_path: Path, *fakes: object, **spec: object) -> StudyRows:
    return read_study(write_study(tmp_path, list(fakes), **spec))  # type: ignore[arg-type]


def facts_of(study: StudyRows) -> dict[str, str]:
    found = recommend(study)
    assert isinstance(found, Recommendation)
    return dict(answer_facts(study, found))


def test_the_headline_names_setting_units_step_window_and_both_kls(tmp_path: Path) -> None:
    study = read(tmp_path, *typical_trials())
    found = recommend(study)
    assert isinstance(found, Recommendation)
    text = headline(study, found)
    for part in (
        "beta",
        "reward per nat of sequence KL",
        "stop ",
        "nats/token = ",
        "nats/sequence",
        "Gold ",
    ):
        assert part in text


def test_the_headline_admits_ties(tmp_path: Path) -> None:
    wide = (0.2, *[0.8] * 8)
    study = read(tmp_path, trial(0.2, gold=wide), trial(0.5, gold=wide))
    found = recommend(study)
    assert isinstance(found, Recommendation)
    assert headline(study, found).endswith("Not told apart from 1 other setting.")
    alone = read(tmp_path / "alone", trial(0.2, gold=wide))
    single = recommend(alone)
    assert isinstance(single, Recommendation)
    assert "told apart" not in headline(alone, single)


def test_a_loss_coefficient_is_beta_over_sigma(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.124, penalty=Penalty.K2_LOSS))
    assert f"KL coefficient {0.124 / SIGMA_R:.1f} in the loss" in native_words(
        study, study.trials[0]
    )


def test_a_reward_coefficient_is_beta_itself(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.124, penalty=Penalty.K1_REWARD))
    assert "KL coefficient 0.124 in the reward" in native_words(study, study.trials[0])


def test_beta_zero_is_recommended_in_words_of_its_own(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.0, origin="zero"))
    found = recommend(study)
    assert isinstance(found, Recommendation)
    assert headline(study, found).startswith("Use no KL penalty (beta = 0)")
    assert facts_of(study)["In your framework"] == "KL coefficient 0"


def test_a_token_kl_is_shown_per_sequence_too(tmp_path: Path) -> None:
    # field case E2: at a mean length of 14 tokens
    study = read(tmp_path, trial(0.3))
    peak = study.trials[0].peak
    assert peak is not None
    assert peak.kl_seq == pytest.approx(14 * peak.kl_token)
    assert "nats/token" in facts_of(study)["Stop"]
    assert "nats/sequence" in facts_of(study)["Stop"]


def test_how_sure_says_that_seeds_were_not_repeated(tmp_path: Path) -> None:
    for number, fakes in enumerate(([trial(0.2)], [trial(0.2), trial(0.3)])):
        text = facts_of(read(tmp_path / str(number), *fakes))["How sure"]
        assert "not that of a fresh seed" in text


def test_a_tie_names_the_range_of_beta_and_the_rule(tmp_path: Path) -> None:
    wide = (0.2, *[0.8] * 8)
    text = facts_of(read(tmp_path, trial(0.2, gold=wide), trial(0.5, gold=wide)))["Tied"]
    assert "can't be told apart" in text
    assert "beta from 0.2 to 0.5 reward per nat of sequence KL" in text
    assert "holds its peak longest" in text


def test_under_gold_final_all_steps_are_to_be_run(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.3), objective={"metric": "gold_final", "kl_limit": 0.5})
    found = recommend(study)
    assert isinstance(found, Recommendation)
    assert "run all 80 steps" in headline(study, found)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"controller": "fixed"}, ", held fixed;"),
        ({"controller": "schedule"}, ", on its schedule;"),
        (
            {"controller": "threshold-1.5x", "target_kl": 0.05},
            ", steered to 0.05 nats/token (threshold-1.5x);",
        ),
        (
            {"controller": "proportional", "target_kl": 0.05, "horizon": 640},
            ", steered to 0.05 nats/token (horizon 640 sequences);",
        ),
    ],
)
def test_the_headline_names_the_controller(
    tmp_path: Path, setting: dict[str, object], words: str
) -> None:
    study = read(tmp_path, trial(0.3, **setting))
    found = recommend(study)
    assert isinstance(found, Recommendation)
    assert words in headline(study, found)
