"""What is said to the person does not touch stdout."""

from __future__ import annotations

import pytest

from kltune.launch.saying import say


def test_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("hello")
    assert capsys.readouterr() == ("", "hello\n")
