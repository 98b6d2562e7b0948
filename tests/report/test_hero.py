from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_study import SIGMA_R, SPEC, trial, typical_trials, write_study

from kltune.report.choice import choose
from kltune.report.document import Hero
from kltune.report.hero import hero
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import read_study
from kltune.trial.outcome import StopReason
from kltune.trial.words import number


def hero_of(folder: Path, *fakes: Any, **spec: Any) -> Hero:
    study = read_study(write_study(folder, list(fakes), **spec))
    found = recommend(study)
    assert isinstance(found, Recommendation)
    return hero(study, choose(study, found))


def typed(folder: Path, *fakes: Any, **spec: Any) -> dict[str, str]:
    return dict(hero_of(folder, *fakes, **spec).type_in)


def test_six_lines_say_what_to_type_with_units_and_the_frameworks_number(tmp_path: Path) -> None:
    lines = typed(tmp_path, trial(0.3))
    assert list(lines) == [
        "KL penalty",
        "beta",
        "KL coefficient",
        "Controller",
        "Stop",
        "Learning rate",
    ]
    assert lines["KL penalty"] == "k2-loss"
    assert lines["beta"] == "0.3 reward per nat of sequence KL"
    assert lines["KL coefficient"].startswith(f"{number(0.3 / SIGMA_R)} in the loss, beside")
    assert lines["Controller"] == "none: beta is held"
    assert lines["Learning rate"] == "0.001"


def test_a_controller_is_typed_with_the_beta_it_starts_from(tmp_path: Path) -> None:
    steered = trial(
        0.3, penalty="k1-reward", controller="proportional", target_kl=0.05, horizon=640
    )
    lines = typed(tmp_path, steered)
    assert lines["beta"] == "0.3 reward per nat of sequence KL at the start"
    assert lines["KL coefficient"].startswith("0.3 at the start in the reward, times the log-ratio")
    assert lines["Controller"].startswith(
        "proportional, target 0.05 nats/token, horizon 640 sequences; a trainer without it: hold beta at "
    )


def test_a_schedule_multiplies_the_beta_that_is_typed(tmp_path: Path) -> None:
    lines = typed(tmp_path, trial(0.3, controller="schedule"))
    assert lines["beta"].endswith("(times the schedule)")
    assert lines["Controller"].startswith("schedule: beta × ")


def test_without_a_penalty_there_is_no_coefficient_to_type(tmp_path: Path) -> None:
    lines = typed(tmp_path, trial(0.0, origin="zero"))
    assert list(lines) == ["KL penalty", "Stop", "Learning rate"]
    assert lines["KL penalty"] == "none: beta = 0"


def test_a_moving_reference_is_typed_too(tmp_path: Path) -> None:
    trainer = {**SPEC["trainer"], "reference": {"every": 20}}
    lines = typed(tmp_path, trial(0.3), trainer=trainer)
    assert lines["Learning rate"] == "0.001; the reference follows the policy every 20 steps"


def test_the_stop_is_a_window_a_step_or_the_end(tmp_path: Path) -> None:
    wide = typed(tmp_path / "wide", trial(0.2, gold=(0.2, *[0.8] * 8)))
    assert wide["Stop"] == "between steps 10 and 80 of 80"
    sharp = typed(tmp_path / "sharp", trial(0.2, gold=(0.2, 0.2, 3.0, *[0.2] * 6), noise=0.01))
    assert sharp["Stop"] == "at step 20 of 80"
    final = {"metric": "gold_final"}
    assert typed(tmp_path / "end", trial(0.2), objective=final)["Stop"] == "after 80 of 80 steps"
    ended = trial(0.2, steps=40, reason=StopReason.GOLD_DROP, detail="gold fell")
    text = typed(tmp_path / "guard", ended, objective=final)["Stop"]
    assert text == "after 40 of 80 steps, where the guard gold_drop ended it"


@pytest.mark.parametrize(
    ("penalty", "target"), [("k2-loss", "trl"), ("k3-loss", "trl"), ("k1-reward", "verl")]
)
def test_the_command_exports_for_a_trainer_that_can_run_it(
    tmp_path: Path, penalty: str, target: str
) -> None:
    found = hero_of(tmp_path / "s", trial(0.3, penalty=penalty))
    assert found.command == f"kltune export s --to {target}"


def test_a_typical_study_has_every_tile_once(tmp_path: Path) -> None:
    found = hero_of(tmp_path, *typical_trials())
    labels = [tile.label for tile in found.tiles]
    assert labels == [
        "Expected gold, not confirmed",
        "Gold before training",
        "KL at the stop",
        "Stop",
        "How sure",
        "Against the best baseline",
        "What the search cost",
    ]
    assert len(found.type_in) <= 6
