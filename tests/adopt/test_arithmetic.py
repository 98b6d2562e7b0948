from __future__ import annotations

import pytest

from kltune.adopt.arithmetic import whole_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024 * 32", 32768),
        ("n*2+(3 - 1)", 18),
        (" n / 3 ", 2),
        ("-n / 3", -2),
        ("-n % 3", -2),
        ("n", 8),
    ],
)
def test_it_is_that_of_the_shell(text: str, value: int) -> None:
    assert whole_number(text, {"n": "8"}) == value


@pytest.mark.parametrize("text", ["m", "w", "1 / 0", "2 ** 9", "1.5", "f(1)", "a b", "", "n > 1"])
def test_anything_else_is_no_number(text: str) -> None:
    assert whole_number(text, {"n": "8", "w": "words"}) is None
