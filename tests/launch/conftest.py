"""Fixtures of several test files here."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from tests.inline_workers import Trio


@pytest.fixture
def trio() -> Generator[Callable[..., Trio]]:
    made: list[Trio] = []

    def make(**how: object) -> Trio:
        made.append(Trio(**how))
        return made[-1]

    yield make
    for one in made:
        one.bank.close()
