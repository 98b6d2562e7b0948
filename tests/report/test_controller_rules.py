from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_study import FakeTrial, trial, write_study

from kltune.report.controller_rules import (
    controller_formula,
    controller_gain,
    controller_short,
    controller_words,
    rule_sentence,
)
from kltune.report.rows import StudyRows, read_study
from kltune.spec.trial import ControllerKind


def read(folder: Path, *fakes: FakeTrial, **spec: Any) -> StudyRows:
    return read_study(write_study(folder, fakes, **spec))


def steered(kind: str, **fields: Any) -> FakeTrial:
    return trial(0.1, **{"controller": kind, "target_kl": 0.05, **fields})


def words_of(study: StudyRows) -> str:
    return controller_words(study, study.trials[0])


def test_the_controller_shows_gain_and_steps_to_double(tmp_path: Path) -> None:
    steered = trial(0.1, controller=ControllerKind.PROPORTIONAL, target_kl=0.05, horizon=640)
    study = read(tmp_path, steered)
    gain, steps = controller_gain(study.spec, study.trials[0])
    assert gain == pytest.approx(0.1)
    assert 1.02**steps == pytest.approx(2)
    text = words_of(study)
    assert "target 0.05 nats/token, horizon 640 sequences, gain n/horizon = 0.1 per step" in text
    assert "35 steps to double" in text


def test_the_formula_is_printed_with_its_constants(tmp_path: Path) -> None:
    # field case E14
    text = controller_formula(read(tmp_path).spec)
    assert "clip(KL / target − 1, −0.2, +0.2) × n / horizon" in text
    assert "n = 64 sequences" in text


def test_a_threshold_rule_is_given_with_its_numbers(tmp_path: Path) -> None:
    text = words_of(read(tmp_path, steered("threshold-1.5x")))
    assert text.startswith(
        "threshold-1.5x: target 0.05 nats/token, every 10 steps beta × 1.5 where KL is above 1.5 × target, "
        "beta × 0.667 where it is below 0.667 × target; beta moved between "
    )
    sentence = rule_sentence(read(tmp_path).spec, ControllerKind.THRESHOLD_PPO)
    assert "1707.06347" in sentence
    assert "every step beta × 2 where KL" in sentence


def test_a_schedule_is_given_with_its_stages(tmp_path: Path) -> None:
    study = read(
        tmp_path,
        steered("schedule", target_kl=None),
        search={"beta": 0.1, "controller": "schedule"},
        control={"schedule": [[0, 0.25], [0.1, 1]]},
    )
    stages = "beta × 0.25 from the start, beta × 1 from 10 % of the steps"
    assert words_of(study).startswith(f"schedule: {stages}; beta moved between 0.025 and 0.1")
    assert rule_sentence(study.spec, ControllerKind.SCHEDULE) == (
        f"Scheduled controller: {stages}, whatever the KL does."
    )


def test_every_option_is_named(tmp_path: Path) -> None:
    study = read(
        tmp_path,
        steered("proportional", target_kl=None, horizon=640),
        search={"beta": 0.1, "controller": "proportional", "horizon": 640},
        control={
            "ema": 0.5,
            "beta_min": 0.01,
            "beta_max": 10,
            "targets": [[0, 1], [0.5, 0.3]],
            "calibrate": {"share": 0.2, "factor": 2},
        },
    )
    for text in (words_of(study), rule_sentence(study.spec, ControllerKind.PROPORTIONAL)):
        for part in (
            "is 2 × the median KL of the first 16 steps, in which beta is held",
            "target × 1 from the start, × 0.3 from 50 % of the steps",
            "KL smoothed, weight of the past 0.5",
            "beta at least 0.01",
            "beta at most 10",
        ):
            assert part in text
    without = rule_sentence(read(tmp_path / "plain").spec, ControllerKind.PROPORTIONAL)
    assert without.endswith("counts from the next step.")


@pytest.mark.parametrize("kind", ControllerKind)
def test_every_kind_has_a_sentence(tmp_path: Path, kind: ControllerKind) -> None:
    sentence = rule_sentence(read(tmp_path).spec, kind)
    assert sentence.endswith(".")
    assert ".." not in sentence


def test_what_to_set_is_said_without_what_it_did(tmp_path: Path) -> None:
    fakes = [
        trial(0.3),
        steered("proportional", horizon=640),
        steered("threshold-1.5x"),
        trial(0.3, controller="schedule"),
    ]
    study = read(tmp_path, *fakes, control={"ema": 0.5})
    fixed, proportional, threshold, schedule = (controller_short(study, r) for r in study.trials)
    assert fixed == "none: beta is held"
    assert proportional.startswith("proportional, target ")
    assert "nats/token, horizon 640 sequences; KL smoothed, weight of the past 0.5" in proportional
    assert threshold.startswith("threshold-1.5x, target ")
    assert schedule.startswith("schedule: beta × ")
    assert not any("moved" in text for text in (fixed, proportional, threshold, schedule))
