from __future__ import annotations

import random

import pytest

from kltune.diagnose.parting import Parting, parting
from kltune.symptoms.curve import Quantity

QUANTITIES = 20
"""Watched at once, as in a real comparison."""


def slow(seed: int, count: int, memory: float) -> list[float]:
    """Values each of which keeps a share of the one before, with a spread of 1."""
    draw, value, found = random.Random(seed), 0.0, list[float]()
    for _ in range(count):
        value = memory * value + draw.gauss(0, (1 - memory * memory) ** 0.5)
        found.append(value)
    return found


def part(a: list[float], b: list[float]) -> Parting:
    points = [(i + 1, x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    return parting(Quantity.PROXY, "", points, QUANTITIES)


@pytest.mark.parametrize(("memory", "most"), [(0.0, 2), (0.7, 3), (0.9, 6)])
def test_two_draws_of_one_slow_process_rarely_part_and_never_for_good(
    memory: float, most: int
) -> None:
    pairs = [part(slow(2 * i, 80, memory), slow(2 * i + 1, 80, memory)) for i in range(60)]
    assert sum(one.step is not None for one in pairs) <= most
    assert not any(one.is_lasting for one in pairs)


def test_a_shift_that_stays_is_lasting_and_one_that_goes_is_not() -> None:
    a, b = slow(0, 80, 0.5), slow(1, 80, 0.5)
    stays = part(a, [y + (12.0 if i >= 50 else 0.0) for i, y in enumerate(b)])
    goes = part(a, [y + (12.0 if 40 <= i < 50 else 0.0) for i, y in enumerate(b)])
    assert stays.step is not None
    assert goes.step is not None
    assert 46 <= stays.step <= 53
    assert (stays.is_lasting, goes.is_lasting) == (True, False)


def test_a_small_shift_parts_and_is_no_reason_to_fail() -> None:
    a, b = slow(0, 400, 0.0), slow(1, 400, 0.0)
    found = part(a, [y + 4.3 for y in b])
    assert found.step is not None
    assert not found.is_lasting


def test_a_few_evaluations_are_not_believed_like_many() -> None:
    def parted(count: int, memory: float) -> int:
        pairs = [(slow(2 * i, count, memory), slow(2 * i + 1, count, memory)) for i in range(200)]
        return sum(part(a, b).step is not None for a, b in pairs)

    assert parted(9, memory=0.9) <= 2


def test_rounding_of_a_constant_never_parts() -> None:
    found = part([1e-3] * 40, [1e-3 * (1 + 1e-9)] * 40)
    assert (found.step, found.is_lasting) == (None, False)


def test_a_constant_that_differs_is_lasting() -> None:
    found = part([0.1] * 40, [0.2] * 40)
    assert (found.step, found.is_lasting) == (1, True)
