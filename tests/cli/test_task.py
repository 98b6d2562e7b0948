from __future__ import annotations

import pytest

from kltune.cli import main


def test_an_unknown_task_is_refused_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kltune", "task", "rebuild", "kichen"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    told = "Invalid value for NAME: 'kichen' is not a built-in task; built in: kitchen"
    assert told in capsys.readouterr().err
