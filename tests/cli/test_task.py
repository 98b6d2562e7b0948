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
