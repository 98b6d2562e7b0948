from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from export_case import target, winner
from fake_study import SPEC, trial, write_study

from kltune.errors import SpecError
from kltune.export.openrlhf import export_openrlhf
from kltune.export.trl import export_trl
from kltune.export.verl import export_verl
from kltune.report.document import Code, Facts, Paragraph
from kltune.report.provenance import (
    export_command,
    export_target,
    flattened,
    provenance,
    replay_command,
    reproduce,
    study_argument,
)
from kltune.report.rows import StudyRows, read_study
from kltune.spec.penalty import Penalty


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


def test_commands_name_the_study_without_a_folder_of_this_machine(tmp_path: Path) -> None:
    for folder, name in (("studies/a b", "'studies/a b'"), ("mine/-x", "./-x"), ("k", "k")):
        study = read_study(write_study(tmp_path / folder, [trial(0.1)]))
        assert study_argument(study) == name
        (row,) = study.trials
        assert replay_command(study, row) == f"kltune replay {name} --trial 0"
        assert export_command(study, row) == f"kltune export {name} --to trl --trial 0"
        best = export_command(study, row, is_recommended=True)
        assert best == f"kltune export {name} --to trl"


def test_the_recommended_trial_can_be_run_again(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", [trial(0.1), trial(0.2)]))
    codes = [b.text for b in provenance(study, study.trials[1]) if isinstance(b, Code)]
    assert codes[1] == "kltune replay s --trial 1"
    codes = [b.text for b in provenance(study) if isinstance(b, Code)]
    assert codes[1] == "kltune replay s --trial 0"
    empty = read_study(write_study(tmp_path / "e", []))
    assert len([b for b in provenance(empty) if isinstance(b, Code)]) == 1


@pytest.mark.parametrize("algorithm", ["grpo", "dr-grpo", "rloo", "reinforce", "ppo"])
@pytest.mark.parametrize("penalty", [None, *Penalty])
def test_a_trainer_is_named_exactly_where_its_export_is_not_refused(
    algorithm: str, penalty: Penalty | None, studies: dict[str, StudyRows]
) -> None:
    study = studies[algorithm]
    row = next(r for r in study.trials if r.setting.penalty is penalty)
    found = winner(
        None if penalty is None else penalty.value,
        0.0 if penalty is None else 0.1,
        trainer={"algorithm": algorithm},
    )
    able: list[str] = []
    for name, build in (("trl", export_trl), ("verl", export_verl), ("openrlhf", export_openrlhf)):
        try:
            build(found, target(found, name))
        except SpecError:
            continue
        able.append(name)
    assert export_target(study, row) == (able[0] if able else "json")


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StudyRows]:
    """One study an algorithm, one trial a penalty."""
    folder = tmp_path_factory.mktemp("studies")
    fakes = [trial(0.0, steps=1), *[trial(0.1, penalty=p, steps=1) for p in Penalty]]
    found: dict[str, StudyRows] = {}
    for algorithm in ("grpo", "dr-grpo", "rloo", "reinforce", "ppo"):
        path = write_study(folder / algorithm, fakes[:1])
        study = read_study(path)
        trainer = study.spec.trainer.model_copy(update={"algorithm": algorithm})
        spec = study.spec.model_copy(update={"trainer": trainer})
        (zero,) = study.trials
        rows = [
            dataclasses.replace(zero, setting=fake.setting, number=n)
            for n, fake in enumerate(fakes)
        ]
        found[algorithm] = dataclasses.replace(study, spec=spec, trials=tuple(rows))
    return found


def test_lines_that_cannot_be_read_are_told_once_with_file_and_line(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [trial(0.1), trial(0.2)])
    path = folder / "trials/00001/metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{broken", *lines[2:], lines[-1][:9]]))

    def warnings(study: StudyRows) -> list[str]:
        blocks = [b for b in provenance(study) if isinstance(b, Paragraph)]
        return [b.text for b in blocks if b.kind == "warning"]

    study = read_study(folder)
    last = len(lines) + 1
    ended = dataclasses.replace(study, is_running=False)
    (text,) = warnings(ended)
    assert text.startswith("2 lines of the record can't be read")
    assert (
        f"trials/00001/metrics.jsonl, line 2; trials/00001/metrics.jsonl, line {last} (cut" in text
    )
    # A process that is at work there has not finished its last line.
    (text,) = warnings(dataclasses.replace(study, is_running=True))
    assert "A line of the record can't be read" in text
    assert "cut short" not in text
    path.write_text("\n".join(lines) + "\n")
    assert warnings(dataclasses.replace(read_study(folder), is_running=False)) == []
