"""``kltune.sweep`` is the command as a function: errors instead of exit codes, a mapping instead of a file."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from fake_study import SPEC, trial, write_study

import kltune
import kltune.api
from kltune.errors import ExitCode, RunError, SpecError, StudyError
from kltune.launch.request import SweepRequest
from kltune.spec.load import load_spec
from kltune.trial.outcome import StopReason

ROOT = Path(__file__).parents[2]
QUICK: dict[str, Any] = {
    "name": "py",
    "task": "kitchen",
    "model": {"base": "builtin:kitchen"},
    "trainer": {
        "steps": 4,
        "prompts": 2,
        "group_size": 4,
        "max_new_tokens": 16,
        "learning_rate": 1e-3,
    },
    "search": {"beta": {"log": [1e-5, 1], "zero": True}, "penalty": {"choice": ["k2-loss"]}},
    "evaluate": {"every": 2, "prompts": 8, "samples": 1},
    "objective": {"metric": "gold_peak", "kl_limit": 0.5},
    "budget": {"trials": 2, "workers": 1, "slots": 1},
    "tracking": {"enabled": False},
}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[SweepRequest]:
    """What reaches the sweep; nothing is trained, a study is there afterwards."""
    requests: list[SweepRequest] = []

    def run(request: SweepRequest) -> ExitCode:
        requests.append(request)
        write_study(request.folder(request.load()), [trial(0.1)])
        return ExitCode.DONE

    monkeypatch.setattr("kltune.api.sweep.run_sweep", run)
    return requests


def ends_with(monkeypatch: pytest.MonkeyPatch, code: ExitCode, *trials: Any) -> None:
    def run(request: SweepRequest) -> ExitCode:
        write_study(request.folder(request.load()), trials)
        return code

    monkeypatch.setattr("kltune.api.sweep.run_sweep", run)


def test_every_argument_reaches_the_request(tmp_path: Path, seen: list[SweepRequest]) -> None:
    path = ROOT / "sweeps" / "kitchen.yaml"
    found = kltune.sweep(
        path,
        study=tmp_path / "s",
        trials=7,
        slots=2,
        workers=1,
        seed=5,
        set=["trainer.steps=9"],
        fresh=True,
    )
    assert found.path == tmp_path / "s"
    (request,) = seen
    assert request == SweepRequest(
        spec_path=path,
        study_path=tmp_path / "s",
        trials=7,
        slots=2,
        workers=1,
        overrides=("trainer.steps=9",),
        fresh=True,
        seed=5,
        command=request.command,
    )
    spec = request.load().spec
    assert (spec.budget.trials, spec.seed, spec.trainer.steps) == (7, 5, 9)


def test_the_report_is_told_a_command_that_does_the_same(
    tmp_path: Path, seen: list[SweepRequest]
) -> None:
    kltune.sweep(ROOT / "sweeps" / "kitchen.yaml", study=tmp_path / "s", trials=7, set=["seed=1"])
    kltune.sweep(SPEC, study=tmp_path / "t", fresh=True)
    path = str(ROOT / "sweeps" / "kitchen.yaml")
    study = str(tmp_path / "s")
    flags = ("--study", study, "--trials", "7", "--set", "seed=1")
    assert seen[0].command == ("kltune", "sweep", path, *flags)
    copy = str(tmp_path / "t" / "spec.yaml")
    assert seen[1].command == ("kltune", "sweep", copy, "--study", str(tmp_path / "t"))


def test_a_mapping_is_the_spec_that_it_says(tmp_path: Path, seen: list[SweepRequest]) -> None:
    read: list[Any] = []
    kltune.sweep(QUICK, study=tmp_path / "a")
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC_TEXT, encoding="utf-8")
    read.append(load_spec(file).spec)
    spec = {**QUICK, "task": {"builtin": "kitchen"}, "seed": 3}
    from kltune.api.sweep import _yaml

    file.write_text(_yaml(spec), encoding="utf-8")
    assert load_spec(file).spec == read[0]
    assert not seen[0].spec_path.exists()  # the scratch file is gone


SPEC_TEXT = """
name: py
task: kitchen
model: {base: "builtin:kitchen"}
trainer: {steps: 4, prompts: 2, group_size: 4, max_new_tokens: 16, learning_rate: 1e-3}
search: {beta: {log: [1e-5, 1], zero: true}, penalty: {choice: [k2-loss]}}
evaluate: {every: 2, prompts: 8, samples: 1}
objective: {metric: gold_peak, kl_limit: 0.5}
budget: {trials: 2, workers: 1, slots: 1}
tracking: {enabled: false}
seed: 3
"""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"trainer.steps": 9, "search.penalty": {"choice": ["k3-loss"]}}, 9),
        (["trainer.steps=9", 'search.penalty={"choice": ["k3-loss"]}'], 9),
        ("trainer.steps=9", 9),
    ],
)
def test_overrides_are_texts_or_a_mapping(
    given: Any, told: int, tmp_path: Path, seen: list[SweepRequest], monkeypatch: Any
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC_TEXT, encoding="utf-8")
    kltune.sweep(path, study=tmp_path / "s", set=given)
    spec = seen[0].load().spec
    assert spec.trainer.steps == told
    choice = spec.search.model_dump(mode="json")["penalty"]["choice"]
    assert choice == (["k2-loss"] if isinstance(given, str) else ["k3-loss"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nope": 1}, "spec: 1 problem"),
        ({"seed": float("inf")}, "spec: seed: must be finite"),
        ({"task": object()}, "spec: task: JSON has no form for object"),
        ({"trainer": {**QUICK["trainer"], "steps": 0}}, "trainer.steps"),
    ],
)
def test_a_bad_mapping_is_a_spec_error_that_names_no_scratch_file(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        kltune.sweep({**QUICK, **change}, study=tmp_path / "s")
    assert told in str(caught.value)
    assert "kltune-" not in str(caught.value)
    assert not (tmp_path / "s").exists()


def test_an_absent_file_is_a_spec_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        kltune.sweep(tmp_path / "absent.yaml")


def test_endings_are_exceptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_with(monkeypatch, ExitCode.INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        kltune.sweep(SPEC, study=tmp_path / "a")
    ends_with(monkeypatch, ExitCode.TERMINATED)
    with pytest.raises(SystemExit) as exit_:
        kltune.sweep(SPEC, study=tmp_path / "b")
    assert exit_.value.code == 75
    failed = trial(0.1, reason=StopReason.ERROR, steps=2, detail="ValueError: no score")
    ends_with(monkeypatch, ExitCode.RUN_ERROR, failed)
    with pytest.raises(RunError, match="no trial ended well: ValueError: no score"):
        kltune.sweep(SPEC, study=tmp_path / "c")
    ends_with(monkeypatch, ExitCode.NO_FEASIBLE_TRIAL)
    assert kltune.sweep(SPEC, study=tmp_path / "d").best is None


@pytest.fixture
def one_thread() -> Generator[None]:
    """Torch with one thread: two on a busy machine wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_sweep_in_a_thread_trains_resumes_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found: list[kltune.Study] = []
    thread = threading.Thread(target=lambda: found.append(kltune.sweep(QUICK, trials=1)))
    thread.start()
    thread.join()
    assert found[0].path == Path("studies/py")
    assert list(found[0].trials["state"]) == ["complete"]
    again = kltune.sweep(QUICK, trials=2)
    assert list(again.trials["state"]) == ["complete", "complete"]
    assert again.trials.loc[0, "gold_peak"] == found[0].trials.loc[0, "gold_peak"]
    command = again.rows.environment["command"]
    assert command == ["kltune", "sweep", "studies/py/spec.yaml", "--trials", "2"]
    assert load_spec(Path("studies/py/spec.yaml")).spec.name == "py"
    with pytest.raises(StudyError, match=r"trainer\.steps"):
        kltune.sweep(QUICK, set={"trainer.steps": 5})


def example() -> str:
    """The lines of the package's own documentation."""
    return (kltune.api.__doc__ or "").split("```python\n")[1].split("```")[0]


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path) -> None:
    (tmp_path / "sweeps").symlink_to(ROOT / "sweeps")
    script = tmp_path / "example.py"
    script.write_text(example(), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "nats/token" in done.stdout.splitlines()
    assert "# verl " in done.stdout
    assert (tmp_path / "tables" / "trials.parquet").is_file()


def test_the_example_is_ten_lines_or_so() -> None:
    assert len(example().strip().splitlines()) <= 12


def test_a_file_that_is_not_there_is_called_by_its_name() -> None:
    with pytest.raises(SpecError, match=r"nope\.yaml"):
        kltune.sweep("nope.yaml")


@pytest.mark.parametrize("spec", [None, 3, ["a.yaml"]])
def test_what_is_no_spec_is_told_in_one_sentence(spec: Any) -> None:
    with pytest.raises(SpecError, match=r"^spec: must be the path of a YAML file, or a mapping"):
        kltune.sweep(spec)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"study": 5}, r"^study: must be a path \(got 5\)"),
        ({"set": 3}, "^set: must be KEY=VALUE texts"),
        ({"set": [1]}, "^set: must be KEY=VALUE texts"),
        ({"trials": "x"}, "budget.trials: "),
        ({"trials": 2.5}, "budget.trials: "),
    ],
)
def test_an_argument_of_a_wrong_type_is_told_in_one_sentence(
    arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        kltune.sweep(QUICK, **arguments)
