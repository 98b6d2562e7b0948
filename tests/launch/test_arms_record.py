"""A folder holds runs of one spec, says what its numbers are in, and is refused where it is something else."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import DiskError, StudyError
from kltune.launch.arms import written_arm
from kltune.launch.arms_record import (
    FILE,
    Asked,
    Clock,
    Kept,
    check_folder,
    is_recorded,
    read_kept,
    read_runs,
    refuse_other_arms,
    units,
    write_asked,
)
from kltune.metrics.jsonl import read_json, write_json
from kltune.spec.load import resolved
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.study.repeat import Run, Where, repeat
from tests.arms_case import SCALE, SPEC, loaded_spec
from tests.fake_bank import FakeBank
from tests.small_search import stop_after

INPUTS = {"prompts (train)": "a", "model": "b"}
K2 = {"beta": 0.1, "penalty": "k2-loss"}


def spec_of(tmp_path: Path, *overrides: str) -> StudySpec:
    return loaded_spec(tmp_path, *overrides).spec


def write(folder: Path, spec: StudySpec, *, seeds: tuple[int, ...] = (1,), **arms: Any) -> None:
    settings = {name: written_arm(arm, spec) for name, arm in (arms or {"a": K2}).items()}
    write_asked(folder, Asked(spec, settings, seeds, SCALE, INPUTS, {"kltune": "1"}))


def test_an_empty_folder_and_one_of_runs_are_let_through(tmp_path: Path) -> None:
    check_folder(tmp_path / "absent")
    check_folder(tmp_path)
    for name in (".lock", ".gitkeep"):
        (tmp_path / name).touch()
    (tmp_path / "artifacts").mkdir()
    check_folder(tmp_path)
    write(tmp_path, spec_of(tmp_path))
    check_folder(tmp_path)


@pytest.mark.parametrize("name", ["study.db", "resolved.json", "trials", "storage.json"])
def test_a_study_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(StudyError, match="holds a study of kltune; the runs need a folder of"):
        check_folder(tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    for name in ("thesis.tex", "runs"):
        (tmp_path / name).touch()
    with pytest.raises(StudyError, match=r"not empty and .*\(arms.json is absent; runs, thesis"):
        check_folder(tmp_path)


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match="is a file"):
        check_folder(tmp_path / "file")


def test_what_was_asked_comes_back_and_adds_up(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    assert read_kept(tmp_path, spec, INPUTS) is None
    write(tmp_path, spec, seeds=(5, 1))
    write(tmp_path, spec, seeds=(5, 7), b={"beta": 0.0})
    facts = read_json(tmp_path / FILE)
    assert facts["seeds"] == [1, 5, 7]
    assert list(facts["arms"]) == ["a", "b"]
    assert "seed" not in facts["arms"]["a"]
    assert facts["arms"]["a"]["learning_rate"] == 2e-3
    assert (facts["spec"]["kl_unit"], facts["spec"]["beta_unit"]) == ("token", "reward")
    kept = read_kept(tmp_path, spec, INPUTS)
    assert kept == Kept(SCALE, facts["arms"])


def test_the_file_says_what_its_numbers_are_in(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    arms = [written_arm(K2, spec)]
    found = units(spec, arms)
    assert found["beta"] == "reward per nat of sequence KL"
    assert (found["target_kl"], found["horizon"]) == ("nats/token", "sequences")
    assert found["wall_s"].startswith("s,")
    native = spec_of(tmp_path, "beta_unit=native", "kl_unit=sequence")
    assert units(native, arms)["target_kl"] == "nats/sequence"
    assert units(native, arms)["beta"] != found["beta"]
    write(tmp_path, spec)
    assert read_json(tmp_path / FILE)["units"] == found


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trainer.steps=13", r"trainer\.steps: 12 in the study, 13 now"),
        ("evaluate.every=4", r"evaluate\.every: 5 in the study, 4 now"),
        ("control.ema=0.5", r"control"),
        ("kl_unit=sequence", "kl_unit"),
        ("seed=1", "seed: 0 in the study, 1 now"),
        ("model.rank=4", r"model\.rank"),
    ],
)
def test_another_spec_is_refused_by_its_fields(override: str, told: str, tmp_path: Path) -> None:
    write(tmp_path, spec_of(tmp_path))
    steered = ("search.controller={value: threshold}", "search.target_kl={value: 0.1}")
    more = steered if override.startswith("control") else ()
    with pytest.raises(StudyError, match=told) as caught:
        read_kept(tmp_path, spec_of(tmp_path, override, *more), INPUTS)
    assert "choose another folder" in str(caught.value)


def test_parts_that_do_not_go_together_any_more_are_named(tmp_path: Path) -> None:
    steered = ("search.controller={value: threshold}", "search.target_kl={value: 0.1}")
    write(tmp_path, spec_of(tmp_path, *steered, "control.ema=0.5"))
    # With the search of now, which steers nothing, the section of then is no spec.
    with pytest.raises(StudyError, match=r"\(control\)"):
        read_kept(tmp_path, spec_of(tmp_path), INPUTS)


def test_what_no_run_looks_at_may_change(tmp_path: Path) -> None:
    write(tmp_path, spec_of(tmp_path))
    changed = ("name=other", "search.beta={log: [0.1, 1]}", "guards.jump=off", "allow_biased=true")
    changed += ("budget.trials=9", "budget.slots=2", "tracking.enabled=false")
    changed += ("baselines=[stiennon]", "objective.metric=gold_mean")
    assert read_kept(tmp_path, spec_of(tmp_path, *changed), INPUTS) is not None


def test_other_inputs_are_named(tmp_path: Path) -> None:
    write(tmp_path, spec_of(tmp_path))
    with pytest.raises(StudyError, match=r"\(gold changed; model changed\)"):
        read_kept(tmp_path, spec_of(tmp_path), {**INPUTS, "model": "c", "gold": "d"})


def test_no_address_is_written(tmp_path: Path) -> None:
    write(tmp_path, spec_of(tmp_path, "tracking.mlflow=http://me:secret@host"))
    assert "secret" not in (tmp_path / FILE).read_text()


def test_a_record_of_before_units_were_written_is_read(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    write(tmp_path, spec)
    facts = read_json(tmp_path / FILE)
    del facts["units"]
    facts["spec"] = {key: value for key, value in resolved(spec).items() if key != "budget"}
    write_json(tmp_path / FILE, facts)
    assert read_kept(tmp_path, spec, INPUTS) is not None


@pytest.mark.parametrize("lost", ["spec", "scale", "inputs", "arms"])
def test_a_file_that_lacks_a_part_is_told(lost: str, tmp_path: Path) -> None:
    write(tmp_path, spec_of(tmp_path))
    facts = read_json(tmp_path / FILE)
    del facts[lost]
    write_json(tmp_path / FILE, facts)
    with pytest.raises(StudyError, match="is not what kltune wrote"):
        read_kept(tmp_path, spec_of(tmp_path), INPUTS)


def test_a_name_means_one_setting(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    write(tmp_path, spec)
    kept = read_kept(tmp_path, spec, INPUTS)
    refuse_other_arms(tmp_path, None, {"a": written_arm({"beta": 0.0}, spec)})
    same = {"a": written_arm(K2, spec), "b": written_arm({"beta": 0.0}, spec)}
    refuse_other_arms(tmp_path, kept, same)
    other = {"a": written_arm({**K2, "beta": 0.3}, spec)}
    with pytest.raises(StudyError, match=r"arm 'a' was another .*\(beta was 0\.1 and is 0\.3\)"):
        refuse_other_arms(tmp_path, kept, other)


def test_the_seconds_of_all_calls_add_up(tmp_path: Path) -> None:
    write(tmp_path, spec_of(tmp_path))
    Clock(tmp_path, time.monotonic() - 100).note()
    assert read_json(tmp_path / FILE)["wall_s"] == pytest.approx(100, abs=1)
    write(tmp_path, spec_of(tmp_path), seeds=(2,))
    clock = Clock(tmp_path, time.monotonic() - 20)
    clock.note()
    clock.note()  # says where it stands, so twice is no harm
    facts = read_json(tmp_path / FILE)
    assert facts["wall_s"] == pytest.approx(120, abs=2)
    assert facts["seeds"] == [1, 2]


def test_a_disk_that_takes_no_more_is_one_sentence(tmp_path: Path) -> None:
    write(tmp_path, spec_of(tmp_path))
    clock = Clock(tmp_path, time.monotonic())
    (tmp_path / f".{FILE}.{__import__('os').getpid()}.tmp").mkdir()
    with pytest.raises(DiskError):
        clock.note()


def test_runs_that_were_interrupted_are_read_but_not_recorded(tmp_path: Path) -> None:
    bank = FakeBank(1)
    bank.nan_at = {1: 3}
    where = Where(tmp_path, spec_of(tmp_path), 0.5)
    setting = TrialSpec.model_validate({**K2, "learning_rate": 1e-3})
    runs = [Run(n, setting, 6, "arm:a", along=True) for n in range(3)]
    repeat(bank, runs[:2], where)
    repeat(bank, runs[2:], where, should_stop=stop_after(3))
    assert [(r.number, is_recorded(r)) for r in read_runs(tmp_path)] == [
        (0, True),
        (1, True),
        (2, False),
    ]


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.json").write_text("{}")
    (tmp_path / "out" / "runs").mkdir(parents=True)
    (tmp_path / "out" / "runs" / "00000").symlink_to(elsewhere)
    with pytest.raises(StudyError, match="leads out"):
        read_runs(tmp_path / "out")


def test_the_file_is_strict_json(tmp_path: Path) -> None:
    write(tmp_path, spec_of(tmp_path))

    def refuse(text: str) -> None:
        raise AssertionError(text)

    facts = json.loads((tmp_path / FILE).read_text(), parse_constant=refuse)
    assert facts["schema"] == 1
    assert facts["spec"]["trainer"]["steps"] == SPEC["trainer"]["steps"]
