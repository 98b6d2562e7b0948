from __future__ import annotations

import io

import pytest
from rich.console import Console
from validate_case import validation

from kltune.grade import Grade
from kltune.validate.table import validation_table


@pytest.mark.parametrize("width", [80, 120])
def test_the_worst_comes_first_and_it_fits(width: int) -> None:
    text = io.StringIO()
    found = validation(Grade.PASS, Grade.WARN, Grade.FAIL)
    Console(file=text, width=width).print(validation_table(found))
    lines = text.getvalue().splitlines()
    starts = [line.split()[0] for line in lines if line.startswith(("pass", "warn", "fail"))]
    assert starts == ["fail", "warn", "pass"]
    assert "No-go" in lines[0]
    assert max(map(len, lines)) <= width
