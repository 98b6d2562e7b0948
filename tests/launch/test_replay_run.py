"""A small study of the built-in model, recorded by the search's own loop, is run again."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, write

from kltune.errors import ExitCode, RunError, StudyError, TrialFault
from kltune.launch import signals
from kltune.launch.assemble import build_bank, find_inputs, keep_scale, load_ground, reference_scale
from kltune.launch.inputs import fingerprints, note_inputs
from kltune.launch.replay import ReplayRequest, plan_replay
from kltune.launch.replay_run import run_plan
from kltune.launch.threads import torch_threads
from kltune.metrics.env import write_env
from kltune.metrics.jsonl import read_json, read_rows, write_json
from kltune.spec.load import load_spec, resolved
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.space import fixed_trials
from kltune.study.storage import open_study
from kltune.trainer.bank import Bank
from kltune.trial.record import read_trial

SPEC: dict[str, Any] = {
    **minimal(),
    "trainer": {
        "steps": 4,
        "prompts": 2,
        "group_size": 4,
        "max_new_tokens": 8,
        "learning_rate": 3e-3,
    },
    "evaluate": {"every": 2, "prompts": 4, "samples": 1},
    "baselines": ["verl-ppo"],
    "search": {"beta": {"log": [0.1, 1]}, "penalty": {"choice": ["k2-loss"]}},
    "budget": {"trials": 2},
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Generator[None]:
    with torch_threads(1):
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials, as `kltune sweep` leaves them."""
    folder = tmp_path_factory.mktemp("recorded")
    study = folder / "small"
    study.mkdir()
    loaded = load_spec(write(folder, SPEC))
    inputs = find_inputs(loaded)
    ground = load_ground(loaded.spec, inputs, None)
    scale = reference_scale(ground, loaded.spec, None)
    opened = open_study(study, loaded.spec)
    run_search(
        build_bank(ground, loaded.spec, scale, slots=1),
        Ledger(opened, fixed_trials(loaded.spec, scale)),
        scale.sigma,
    )
    opened.close()
    write_json(study / "resolved.json", resolved(loaded.spec))
    placement = {"workers": 1, "slots": 1, "threads": 1, "device": "cpu"}
    write_json(study / "placement.json", placement)
    write_env(study, ground.loaded.device_facts())
    note_inputs(study, fingerprints(inputs.task, inputs.source))
    keep_scale(study, scale)
    return study


@pytest.fixture
def study(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "small"))


def never() -> str | None:
    return None


def replayed(study: Path, trial: int = 1, stop: Any = never, **flags: Any) -> tuple[ExitCode, Any]:
    out = io.StringIO()
    request = ReplayRequest(study, trial, as_json=True, **flags)
    code = run_plan(plan_replay(request), stop, out)
    return code, json.loads(out.getvalue())


def outside(study: Path) -> dict[str, bytes]:
    files = (path for path in study.rglob("*") if path.is_file() and "replays" not in path.parts)
    return {str(path): path.read_bytes() for path in files}


def test_a_trial_repeats_its_record_and_the_study_is_left_alone(study: Path) -> None:
    before = outside(study)
    code, facts = replayed(study, trace=3)
    assert (code, facts["likeness"]) == (ExitCode.DONE, "same")
    assert facts["verdict"] == "repeats the record to the last bit: 4 steps and 3 evaluations"
    assert outside(study) == before
    folder = study / "replays" / "00001"
    assert read_json(folder / "replay.json") == facts
    own, record = read_trial(folder), read_trial(study / "trials" / "00001")
    assert [row["train/loss"] for row in own.steps] == [row["train/loss"] for row in record.steps]
    assert (folder / "checkpoints" / "last" / "slot.safetensors").is_file()
    trace = read_json(folder / "trace.json")
    assert trace["recorded_loss"] == record.steps[2]["train/loss"] == trace["metrics"]["train/loss"]
    assert all(one["equal"] for one in trace["sums"])
    assert facts["trace"]["wrong"] == []
    assert "Token by token" in (folder / "trace.txt").read_text(encoding="utf-8")
    assert (folder / "trace.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_second_replay_takes_a_folder_of_its_own(study: Path) -> None:
    for number in (1, 2):
        _, facts = replayed(study, steps=1)
        assert facts["folder"].endswith("00001" if number == 1 else "00001-2")
    assert sorted(path.name for path in (study / "replays").iterdir()) == ["00001", "00001-2"]
    _, facts = replayed(study, steps=1, out=study.parent / "mine")
    assert Path(facts["folder"]) == study.parent / "mine"
    assert len(read_rows(study.parent / "mine" / "metrics.jsonl")) == 1


def test_beyond_the_record_the_clock_stays_the_studys(study: Path) -> None:
    _, facts = replayed(study, trial=0, steps=6)
    assert facts["steps"] == {"recorded": 4, "asked": 6, "run": 6, "compared": 4}
    assert facts["likeness"] == "same"
    assert any("steps 5 to 6 lie beyond the study's 4" in note for note in facts["notes"])
    assert any("guards only warn" in note for note in facts["notes"])
    evals = read_rows(study / "replays" / "00000" / "evals.jsonl")
    assert [row["step"] for row in evals] == [0, 2, 4, 6]


def test_a_record_that_says_something_else_is_named_with_its_step(
    study: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = study / "trials" / "00001" / "metrics.jsonl"
    rows = read_rows(path)
    rows[1]["train/proxy_mean"] += 0.5
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    code, facts = replayed(study)
    assert (code, facts["likeness"]) == (ExitCode.DONE, "different")
    assert (facts["parts_at"]["kind"], facts["parts_at"]["step"]) == ("step", 2)
    assert facts["parts_at"]["largest"][0]["name"] == "train/proxy_mean"
    assert "parts from the record at step 2: train/proxy_mean" in capfd.readouterr().err


def test_inputs_that_changed_since_are_refused_and_nothing_is_made(study: Path) -> None:
    inputs = read_json(study / "inputs.json")
    inputs["inputs"]["prompts (train)"] = "another digest"
    write_json(study / "inputs.json", inputs)
    with pytest.raises(StudyError, match=r"prompts \(train\) changed since this study began"):
        replayed(study)
    assert not (study / "replays").exists()


def test_cut_short_it_keeps_and_compares_what_was_run(study: Path) -> None:
    calls = iter([None, None, None, signals.INTERRUPT])
    code, facts = replayed(study, stop=lambda: next(calls))
    assert code is ExitCode.INTERRUPTED
    assert facts["steps"]["run"] == 2
    assert facts["verdict"] == "repeats the record to the last bit: 2 steps and 2 evaluations"
    own = read_trial(study / "replays" / "00001")
    assert own.outcome is not None
    assert own.outcome.verdict.reason == "interrupted"
    assert (own.folder / "checkpoints" / "last" / "slot.safetensors").is_file()
    terminated = iter([None, signals.TERMINATE])
    assert replayed(study, stop=lambda: next(terminated))[0] is ExitCode.TERMINATED


def test_a_proxy_that_fails_is_an_error_with_what_was_run(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Bank.train_step

    def failing(bank: Bank) -> Any:
        if bank._states[0].step == 2:  # pyright: ignore[reportPrivateUsage]
            raise TrialFault((0,), "the proxy raised")
        return before(bank)

    monkeypatch.setattr(Bank, "train_step", failing)
    code, facts = replayed(study)
    assert code is ExitCode.RUN_ERROR
    assert facts["ended"]["detail"] == "the proxy raised"
    assert facts["steps"]["run"] == 2


def test_a_guard_ends_a_replay_as_it_ended_the_trial_but_only_warns_where_steps_are_given(
    study: Path,
) -> None:
    spec = read_json(study / "resolved.json")
    spec["guards"]["kl"] = {**(spec["guards"]["kl"] or {}), "limit": 1e-9, "patience": 1}
    spec["objective"]["kl_limit"] = 1e-9
    write_json(study / "resolved.json", spec)
    _, facts = replayed(study)
    assert facts["ended"]["reason"] == "kl_limit"
    assert facts["steps"]["run"] < 4
    _, facts = replayed(study, steps=4)
    assert (facts["ended"]["reason"], facts["steps"]["run"]) == ("done", 4)
    assert any(note.startswith("guard: kl ") for note in facts["notes"])
    (warning,) = read_trial(study / "replays" / "00001-2").warnings
    assert warning.guard == "kl_limit"


def test_a_folder_that_can_not_be_made_is_said(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *args: Any, **how: Any) -> None:
        raise OSError(28, "No space left on device")

    plan = plan_replay(ReplayRequest(study, 1))
    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(RunError, match="no folder for the replay can be made"):
        run_plan(plan, never, io.StringIO())


def test_the_table_is_for_people(study: Path) -> None:
    out = io.StringIO()
    run_plan(plan_replay(ReplayRequest(study, 1, steps=1)), never, out)
    assert out.getvalue().startswith("trial 1 of small: repeats the record to the last bit")
