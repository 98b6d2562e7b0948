from __future__ import annotations

import pytest
import typer

from kltune.cli import flags


def test_whole_numbers_are_read() -> None:
    assert flags.count("1") == 1
    assert flags.count("24") == 24
    assert flags.seed("0") == 0


@pytest.mark.parametrize("text", ["0", "-3", "1.5", "many", "", "1e3"])
def test_a_count_is_at_least_1(text: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        flags.count(text)
    assert str(caught.value) == f"must be a whole number of at least 1 (got {text!r})"


def test_a_seed_is_at_least_0() -> None:
    with pytest.raises(typer.BadParameter, match=r"at least 0 \(got '-1'\)"):
        flags.seed("-1")
