from __future__ import annotations

from pathlib import Path

import pytest

from kltune.cli import main
from kltune.rebuild import kitchen


def test_an_unknown_task_is_refused_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kltune", "task", "rebuild", "kichen"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    told = "Invalid value for NAME: 'kichen' is not a built-in task; built in: kitchen"
    assert told in capsys.readouterr().err


def test_the_size_reaches_the_rebuild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []
    monkeypatch.setattr(kitchen, "rebuild", lambda *given: seen.append(given))
    args = ["kltune", "task", "rebuild", "kitchen", "--size", "large", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", args)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert (exit_.value.code, seen) == (0, [(tmp_path, 0, "large")])
    monkeypatch.setattr("sys.argv", [*args[:5], "huge"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr("sys.argv", ["kltune", "task", *args])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def test_a_new_task_is_made_and_its_rewards_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "new", "mine", "--kind", "verl") == 0
    assert run(monkeypatch, "test", "mine/spec.yaml", "-n", "2") == 0
    assert "rewards.py:compute_score" in capsys.readouterr().out
    assert run(monkeypatch, "new", "mine") == 2
    assert run(monkeypatch, "list") == 0


def test_a_file_and_the_model_are_not_both_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "test", "s.yaml", "--draw", "--completions", "c.txt") == 2
    assert "not with --draw" in capsys.readouterr().err
