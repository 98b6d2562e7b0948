from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from fake_study import SPEC, trial, write_study

from kltune.report.document import Facts
from kltune.report.provenance import flattened, provenance, reproduce
from kltune.report.rows import StudyRows, read_study


def facts_of(study: StudyRows) -> dict[str, str]:
    blocks = [block for block in provenance(study) if isinstance(block, Facts)]
    return {label: text for block in blocks for label, text in block.pairs}


def test_versions_device_seeds_and_sigma_are_there(tmp_path: Path) -> None:
    facts = facts_of(read_study(write_study(tmp_path, [trial(0.1, seed=3)])))
    assert facts["packages torch"] == "2.13.0"
    assert facts["device"] == "cpu"
    assert facts["seed"] == "study 0; trials 3"
    assert facts["sigma_R"].startswith("0.62 raw reward")


def test_the_command_is_the_recorded_one_quoted_for_a_shell(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, []))
    assert reproduce(study) == "kltune sweep sweeps/kitchen.yaml"
    odd = dataclasses.replace(study, environment={"command": ["kltune", "sweep", "my spec.yaml"]})
    assert reproduce(odd) == "kltune sweep 'my spec.yaml'"
    silent = dataclasses.replace(study, environment={})
    assert reproduce(silent) == "kltune sweep spec.yaml --study again --trials 24 --seed 0"


def test_nested_settings_become_lines_without_what_is_absent() -> None:
    assert list(flattened({"a": {"b": 1, "c": None}, "schema": 1})) == [("a b", "1")]


@pytest.mark.parametrize(
    ("trainer", "unit", "words"),
    [
        ({}, "reward", "beta / sigma_R, since grpo"),
        ({"algorithm": "reinforce"}, "reward", "beta / std_r 0.8 (spread of the proxy over all"),
        ({"algorithm": "ppo"}, "reward", "beta / std_r 0.8 (spread of the proxy over all"),
        ({"algorithm": "ppo", "critic": {"whiten": False}}, "reward", "beta: ppo divides"),
        ({"algorithm": "rloo"}, "reward", "beta: rloo divides its advantages by nothing"),
        ({"algorithm": "dr-grpo"}, "reward", "beta × (G − 1) / G, G = 8"),
        (
            {"algorithm": "rloo", "reward": {"scale": 2}},
            "reward",
            "beta × shaped reward per raw reward (trainer.reward): rloo",
        ),
        ({}, "native", "beta as it stands (native); of exact-full beta / sigma_R"),
        ({"algorithm": "rloo"}, "native", "beta as it stands (native)"),
    ],
)
def test_the_coefficient_follows_algorithm_and_unit(
    tmp_path: Path, trainer: dict[str, Any], unit: str, words: str
) -> None:
    full = {**SPEC["trainer"], **trainer}
    fakes = [trial(0.1, penalty="exact-full")]
    study = read_study(write_study(tmp_path, fakes, trainer=full, beta_unit=unit))
    study = dataclasses.replace(study, reference={**study.reference, "std_r": 0.8})
    facts = facts_of(study)
    assert facts["Coefficient in the loss"].startswith(words)
    assert "beta / sigma_R" not in facts["sigma_R"]


def test_a_reference_that_follows_the_policy_is_said(tmp_path: Path) -> None:
    facts = facts_of(read_study(write_study(tmp_path, [trial(0.1)])))
    assert "Reference" not in facts
    assert facts["KL"].startswith("exact KL(policy ‖ reference)")
    trainer = {**SPEC["trainer"], "reference": {"every": 40}}
    facts = facts_of(read_study(write_study(tmp_path / "b", [trial(0.1)], trainer=trainer)))
    assert facts["Reference"].startswith("it follows the policy: every 40 steps it becomes")
    assert "act on the KL to the moving reference" in facts["Reference"]
    assert facts["KL"].startswith("exact KL(policy ‖ start)")


def test_the_unit_of_beta_follows_the_credit_and_where_it_is_paid(tmp_path: Path) -> None:
    trainer = {**SPEC["trainer"], "kl": {"credit": "length-mean"}}
    fakes = [trial(0.1, penalty="k1-reward"), trial(0.1)]
    mean, sequence = "reward per nat per token of mean KL", "reward per nat of sequence KL"
    for name, tried, words in (
        ("paid", fakes[:1], mean),
        ("lossy", fakes[1:], sequence),
        ("both", fakes, f"{mean} (in the loss: {sequence})"),
    ):
        study = read_study(write_study(tmp_path / name, tried, trainer=trainer))
        assert facts_of(study)["beta"] == words
