from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from spec_files import minimal, write

from kltune.errors import SpecError, StudyError
from kltune.launch.join import find_entrance, is_free, run_join, spec_of_folder
from kltune.launch.request import JoinRequest
from kltune.metrics.jsonl import write_json
from kltune.spec.load import load_spec, resolved


def study_of(folder: Path, trials: int = 4) -> Path:
    study = folder / "study"
    study.mkdir()
    path = write(folder, {**minimal(), "budget": {"trials": trials}})
    write_json(study / "resolved.json", resolved(load_spec(path).spec))
    (study / "spec.yaml").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return study


def test_a_study_is_named_by_its_folder_its_spec_in_it_or_a_spec(tmp_path: Path) -> None:
    study, spec = study_of(tmp_path), write(tmp_path, minimal())
    for target in (study, study / "spec.yaml"):
        found = find_entrance(JoinRequest(str(target)))
        assert (found.study_path, found.given) == (study, None)
    found = find_entrance(JoinRequest(str(spec)))
    assert found.given is not None
    assert found.study_path == Path("studies") / found.given.spec.name
    assert find_entrance(JoinRequest(str(spec), study_path=study)).study_path == study


def test_what_is_not_there_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such study folder and no such spec"):
        run_join(JoinRequest(str(tmp_path / "absent")))
    code = (
        "import sys\nfrom kltune.errors import KltuneError\nfrom kltune.launch.join import run_join\n"
        "from kltune.launch.request import JoinRequest\n"
        "try:\n    run_join(JoinRequest(sys.argv[1]))\nexcept KltuneError:\n"
        "    print(sorted({'torch', 'optuna', 'mlflow', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "absent")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_folder_without_a_study_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(StudyError, match="no study to work on"):
        run_join(JoinRequest(str(tmp_path)))
    assert {path.name for path in tmp_path.iterdir()} <= {"mine.txt", ".lock"}


def test_only_what_is_free_to_change_is_changed_in_a_study_that_is_there(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    with pytest.raises(SpecError, match=r"--set: trainer\.steps can't be changed .* budget"):
        find_entrance(JoinRequest(str(study), overrides=("trainer.steps=3",)))
    request = JoinRequest(str(study), slots=3, overrides=("budget.trials=9",))
    found = spec_of_folder(study, request, None)
    assert (found.spec.budget.slots, found.spec.budget.trials) == (3, 9)
    assert is_free("guards.wall=1h")
    assert not is_free("guards.kl.action=warn")
    assert not is_free("budgets=1")


def test_a_spec_that_is_named_does_not_set_the_budget_of_a_study_that_runs(tmp_path: Path) -> None:
    study = study_of(tmp_path, trials=12)
    given = load_spec(write(tmp_path, {**minimal(), "budget": {"trials": 4}}))
    found = spec_of_folder(study, JoinRequest("spec.yaml"), given)
    assert found.spec.budget.trials == 12
    assert found.path == given.path


def test_flags_that_contradict_the_target_are_refused(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    with pytest.raises(SpecError, match="--study: STUDY is a study folder already"):
        find_entrance(JoinRequest(str(study), study_path=tmp_path / "other"))
    address = "postgresql://u@127.0.0.1:1/x#s"
    with pytest.raises(SpecError, match="leave --storage out"):
        find_entrance(JoinRequest(address, storage="postgresql://u@h/x"))
    with pytest.raises(SpecError, match="password"):
        find_entrance(JoinRequest("postgresql://u:secret@h/x#s"))


def test_an_address_with_a_folder_needs_no_server_to_be_found(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    address = "postgresql://u@127.0.0.1:1/x#s"
    assert find_entrance(JoinRequest(address, study_path=study)).study_path == study
    with pytest.raises(StudyError, match=r"its study folder .*absent is not there.*--study PATH"):
        find_entrance(JoinRequest(address, study_path=tmp_path / "absent"))
