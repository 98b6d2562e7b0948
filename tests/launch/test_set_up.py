from __future__ import annotations

from pathlib import Path

from spec_files import minimal, write

from kltune.launch.assemble import find_inputs, keep_scale, load_ground
from kltune.launch.disk import disk_need
from kltune.launch.inputs import fingerprints
from kltune.launch.set_up import Ready, is_set_up, plan_words, scale_words, write_down
from kltune.metrics.jsonl import read_json, write_json
from kltune.metrics.record import RewardScale
from kltune.spec.load import load_spec
from kltune.study.storage import open_study

SCALE = RewardScale(sigma=0.5, std=1.0, mean=0.0, num_groups=3, mean_tokens=9.0)


def test_a_study_is_set_up_once_everything_that_members_go_by_is_there(tmp_path: Path) -> None:
    spec, study = load_spec(write(tmp_path, minimal())), tmp_path / "study"
    inputs = find_inputs(spec)
    ground = load_ground(spec.spec, inputs, None)
    study.mkdir()
    opened = open_study(study, spec.spec)
    assert not is_set_up(study)
    prints, disk = fingerprints(inputs.task, inputs.source), disk_need(spec.spec, ground.loaded)
    ready = Ready(ground, SCALE, prints, disk)
    write_down(opened, spec, inputs, ready, ("kltune", "sweep", "x.yaml"))
    opened.close()
    assert is_set_up(study)
    assert read_json(study / "env.json")["command"] == ["kltune", "sweep", "x.yaml"]
    (study / "resolved.json").unlink()
    assert not is_set_up(study)


def test_the_scale_is_what_makes_it_set_up(tmp_path: Path) -> None:
    for name in ("spec.yaml", "resolved.json"):
        write_json(tmp_path / name, {})
    assert not is_set_up(tmp_path)
    keep_scale(tmp_path, SCALE)
    assert is_set_up(tmp_path)


def test_what_is_said_of_plan_and_scale_names_units(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, minimal()))
    assert "trials" in plan_words(spec)
    assert "3 prompts, 9.0 tokens per completion" in scale_words(SCALE)
