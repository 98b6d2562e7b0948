from __future__ import annotations

import pytest

from kltune.spec.duration import seconds


def test_durations_are_seconds() -> None:
    given = (90, 1.5, "90", "90s", "15m", "2h", "0.5m")
    assert [seconds(one) for one in given] == [90, 1.5, 90, 90, 900, 7200, 30]


def test_anything_else_is_refused_with_the_forms_that_are_allowed() -> None:
    with pytest.raises(ValueError, match=r"like 90s, 15m, 2h \(got '15 min'\)"):
        seconds("15 min")
