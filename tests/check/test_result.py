from __future__ import annotations

from kltune.check.result import CheckResult, Line
from kltune.grade import Grade
from kltune.metrics.jsonl import encode


def line(grade: Grade, value: float | None = 1.0) -> Line:
    return Line("pad", "a title", grade, "found.", "", {"pad_id": value})


def test_the_worst_line_grades_the_whole() -> None:
    assert CheckResult("s", (line(Grade.PASS), line(Grade.WARN)), 1.0).grade is Grade.WARN
    assert CheckResult("s", (line(Grade.FAIL), line(Grade.WARN)), 1.0).grade is Grade.FAIL


def test_json_holds_every_line() -> None:
    row = CheckResult("s", (line(Grade.WARN, None),), 1.234, ("the proxy",)).as_json()
    assert row["grade"] == "warn"
    assert row["lines"][0] == {
        "name": "pad", "title": "a title", "grade": "warn", "shown": "found.", "remedy": "",
        "numbers": {"pad_id": None},
    }  # fmt: skip
    assert (row["skipped"], row["seconds"]) == (["the proxy"], 1.23)
    assert encode(row)
