from __future__ import annotations

import io

import pytest
from rich.console import Console

from kltune.check.result import CheckResult, Line
from kltune.check.table import check_table
from kltune.grade import Grade


def line(grade: Grade, name: str = "pad") -> Line:
    return Line(name, "pad id is no stop id", grade, "Pad id 7 of a vocabulary of 30.", "Set it.")


def shown(found: CheckResult, width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(check_table(found))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_the_worst_comes_first_and_it_fits(width: int) -> None:
    lines = tuple(line(grade, "reward_scale") for grade in (Grade.PASS, Grade.WARN, Grade.FAIL))
    text = shown(CheckResult("small", lines, 2.0, ("the proxy: it is yet to be learned",)), width)
    starts = [row.split()[0] for row in text if row.startswith(("pass", "warn", "fail"))]
    assert starts == ["fail", "warn", "pass"]
    assert "not sound" in text[0]
    assert "1 failed, 1 warned, 1 passed; 2.0 s" in text[1]
    assert "- the proxy: it is yet to be learned" in text
    assert max(map(len, text)) <= width


def test_a_sound_one_says_so() -> None:
    assert "small: sound" in shown(CheckResult("small", (line(Grade.PASS),), 2.0), 80)[0]
    assert "warnings" in shown(CheckResult("small", (line(Grade.WARN),), 2.0), 80)[0]


def test_what_a_scorer_said_can_do_nothing_to_the_terminal() -> None:
    bad = "[red]boom\x1b[31m\x1b]0;title\x07"
    lines = (Line("gold", f"{bad} judges", Grade.FAIL, bad, bad),)
    text = "\n".join(shown(CheckResult(f"x{bad}", lines, 1.0, (bad,)), 300))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("[red]boom\\u001b[31m") == 5
