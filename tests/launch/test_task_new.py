from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import ExitCode, SpecError
from kltune.launch.task_new import NewTask, run_task_new
from kltune.scaffold.task_files import Kind
from kltune.spec.checks import check_paths
from kltune.spec.load import load_spec
from kltune.tasks.calls_probe import probe_scorers
from kltune.tasks.registry import load_task


@pytest.mark.parametrize("kind", ["function", "verl", "model"])
def test_a_new_task_loads_and_its_scorers_score(tmp_path: Path, kind: Kind) -> None:
    folder = tmp_path / "a b" / "mytask"
    assert run_task_new(NewTask(folder, kind)) is ExitCode.DONE
    loaded = load_spec(folder / "spec.yaml")
    assert loaded.spec.name == "mytask"
    check_paths(loaded)
    task = load_task(loaded.spec.task, lambda text: folder / text)
    assert len(task.splits.train) >= 16
    probe_scorers(task)


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious", encoding="utf-8")
    with pytest.raises(SpecError, match=r"^NAME: .* is there already"):
        run_task_new(NewTask(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(SpecError, match="is there already"):
        run_task_new(NewTask(tmp_path / "mine.txt"))


def test_the_next_commands_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_task_new(NewTask(tmp_path / "mytask"))
    said = capsys.readouterr().err
    assert "kltune task test" in said
    assert "kltune check" in said
