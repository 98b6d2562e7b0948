from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, problems_of, write

from kltune.spec.baseline import BaselineSpec, setting
from kltune.spec.load import from_resolved, load_spec, resolved
from kltune.spec.recipes import RECIPES

OWN: dict[str, Any] = {
    "name": "my-verl",
    "penalty": "k3-loss",
    "beta": 0.001,
    "beta_in": "advantage",
}
STEERED: dict[str, Any] = {
    **OWN,
    "penalty": "k1-reward",
    "controller": "proportional",
    "target_kl_token": 0.1,
    "horizon": 100,
}


def told(folder: Path, *baselines: object, **changes: Any) -> list[str]:
    return problems_of(folder, {**minimal(), "baselines": list(baselines), **changes})


def test_names_and_written_settings_stand_together_and_survive_the_record(tmp_path: Path) -> None:
    spec = {**minimal(), "baselines": ["verl-ppo", OWN, {**STEERED, "name": "other"}]}
    loaded = load_spec(write(tmp_path, spec)).spec
    assert [setting(one).name for one in loaded.baselines] == ["verl-ppo", "my-verl", "other"]
    assert setting(loaded.baselines[0]) is RECIPES["verl-ppo"]
    assert from_resolved(resolved(loaded)) == loaded


def test_an_old_record_of_names_reads_as_before(tmp_path: Path) -> None:
    loaded = load_spec(write(tmp_path, {**minimal(), "baselines": ["verl-ppo"]})).spec
    assert resolved(loaded)["baselines"] == ["verl-ppo"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a/b"}, "baselines.0.name: must be up to 60 letters"),
        ({"name": "verl-ppo"}, "baselines.0.name: verl-ppo is a known recipe's name"),
        ({"penalty": None}, "baselines.0.penalty: needed where beta is above 0"),
        ({"beta": 0}, "baselines.0.penalty: beta is 0, so k3-loss has no effect"),
        ({"beta_in": None}, "baselines.0.beta_in: "),
        ({"beta": -1}, "baselines.0.beta: "),
        ({"beta": 1e300}, "baselines.0.beta: must be at most 1000 with beta_in advantage"),
        (
            {"beta": 1e7, "beta_in": "reward"},
            "baselines.0.beta: must be at most 1e+06 with beta_in",
        ),
        ({"beta": "0.1"}, "baselines.0.beta: Input should be a number, not a text (got '0.1')"),
        ({"beta": True}, "baselines.0.beta: Input should not be a truth value (got true)"),
        (
            {"target_kl": 6},
            "baselines.0.target_kl: say whose nats: target_kl_seq (per sequence) or",
        ),
        ({"penalty": "k1-loss"}, "baselines.0.penalty: estimator k1 placed in the loss"),
        ({"controller": "schedule"}, "baselines.0.controller: schedule takes its numbers"),
        ({"controller": "threshold"}, "baselines.0.controller: threshold takes its numbers"),
        ({"controller": "threshold-1.2x"}, "baselines.0.target_kl_seq: needed by threshold-1.2x"),
        ({"target_kl_token": 1}, "baselines.0.target_kl_token: has no effect with"),
        ({"horizon": 9}, "baselines.0.horizon: has no effect with controller fixed"),
        ({"surprise": 1}, "baselines.0.surprise: "),
    ],
)
def test_a_written_baseline_that_makes_no_sense_is_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    lines = told(tmp_path, {**OWN, **change})
    assert any(line.startswith(words) for line in lines), lines
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"horizon": None}, "horizon: needed by controller proportional"),
        ({"target_kl_seq": 2.0}, "target_kl_seq: give it in nats per sequence or per token"),
        ({"target_kl_token": None}, "target_kl_seq: needed by proportional"),
        ({"horizon": 1.6}, "horizon: must be above 1.6 sequences (0.2 x 8"),
        ({"beta": 0, "penalty": None}, "controller: proportional multiplies beta"),
    ],
)
def test_a_controller_needs_what_it_needs(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    lines = told(tmp_path, {**STEERED, **change})
    assert [line.startswith(f"baselines.0.{words}") for line in lines] == [True], lines


def test_a_biased_one_is_admitted_where_the_spec_admits_them(tmp_path: Path) -> None:
    assert told(tmp_path, {**OWN, "penalty": "k1-loss"}, allow_biased=True) == []


def test_each_name_once(tmp_path: Path) -> None:
    (line,) = told(tmp_path, OWN, OWN)
    assert line.startswith("baselines.1: is called ")
    (line,) = told(tmp_path, "nonsense")
    assert "a setting of your own is written out: {name, penalty" in line


def test_its_controller_uses_the_bounds_of_control(tmp_path: Path) -> None:
    # control.beta_max has no effect where nothing steers; a written baseline may be what does.
    control = {"beta_max": 2.0}
    assert told(tmp_path, STEERED, control=control) == []
    assert told(tmp_path, OWN, control=control) != []


def test_beta_zero_needs_no_penalty() -> None:
    found = BaselineSpec.model_validate({"name": "none", "beta": 0, "beta_in": "reward"})
    assert (found.penalty, found.steers) == (None, False)
