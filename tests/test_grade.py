"""The worst of several grades."""

from __future__ import annotations

from kltune.grade import Grade, worst


def test_one_fail_is_a_fail_and_nothing_is_a_pass() -> None:
    assert worst([Grade.PASS, Grade.FAIL, Grade.WARN]) is Grade.FAIL
    assert worst([Grade.PASS, Grade.WARN]) is Grade.WARN
    assert worst([]) is Grade.PASS
