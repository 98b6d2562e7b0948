from __future__ import annotations

from pathlib import Path

import pytest

from kltune.cli import main


def test_a_folder_that_is_no_study_is_one_message_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kltune", "report", str(tmp_path)])
    with pytest.raises(SystemExit) as exit_:
        main()
    shown = capsys.readouterr()
    assert exit_.value.code == 2
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert str(tmp_path) in shown.err
