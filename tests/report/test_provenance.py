from __future__ import annotations

import dataclasses
from pathlib import Path

from fake_study import trial, write_study

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


def test_the_share_of_bookkeeping_is_there_once_it_was_measured(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, []))
    assert "bookkeeping" not in facts_of(study)
    timed = dataclasses.replace(study, timing={"wall_s": 300.0, "bookkeeping_frac": 0.021})
    assert facts_of(timed)["bookkeeping"].startswith("2.1 % of the wall time")


def test_the_command_is_the_recorded_one_quoted_for_a_shell(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, []))
    assert reproduce(study) == "kltune sweep sweeps/kitchen.yaml"
    odd = dataclasses.replace(study, environment={"command": ["kltune", "sweep", "my spec.yaml"]})
    assert reproduce(odd) == "kltune sweep 'my spec.yaml'"
    silent = dataclasses.replace(study, environment={})
    assert reproduce(silent) == "kltune sweep spec.yaml --study again --trials 24 --seed 0"


def test_nested_settings_become_lines_without_what_is_absent() -> None:
    assert list(flattened({"a": {"b": 1, "c": None}, "schema": 1})) == [("a b", "1")]
