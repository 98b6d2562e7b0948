"""What is said to the person does not touch stdout."""

from __future__ import annotations

import pytest

from kltune.launch.saying import say


def test_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("hello")
    assert capsys.readouterr() == ("", "hello\n")


def test_control_characters_do_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[31mb\x1b]0;title\x07")
    assert capsys.readouterr().err == "a\\u001b[31mb\\u001b]0;title\\u0007\n"


def test_a_secret_is_not_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "geheim-4711")
    say("geheim-4711 at postgresql://u:other-4711@h/x")
    assert capsys.readouterr().err == "*** at postgresql://***@h/x\n"
