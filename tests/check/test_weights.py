from __future__ import annotations

from kltune.check.weights import weights_line
from kltune.grade import Grade


def test_no_weight_left_over_passes() -> None:
    line = weights_line(())
    assert (line.name, line.grade, line.remedy) == ("weights", Grade.PASS, "")


def test_weights_left_over_warn_with_some_names() -> None:
    line = weights_line(("a", "b", "c", "d"))
    assert (line.grade, bool(line.remedy)) == (Grade.WARN, True)
    assert "4 weight(s) of the files: a, b, c, ..." in line.shown
    assert line.numbers["num_unread"] == 4
