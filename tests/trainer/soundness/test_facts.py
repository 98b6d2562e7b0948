"""What the facts themselves derive."""

from __future__ import annotations

import math

from kltune.trainer.soundness.facts import MemoryFacts, PaddingFacts


def test_the_worst_of_padding_is_the_largest_and_a_nan_is_worse() -> None:
    assert PaddingFacts(9, 1e-6, 2e-6, 3e-6, 0.0, 5e-6, 1e-6).worst == 5e-6
    assert math.isnan(PaddingFacts(9, 1e-6, math.nan, 3e-6, 0.0, 5e-6, 1e-6).worst)


def test_a_memory_estimate_is_the_sum_of_its_parts() -> None:
    assert MemoryFacts(2, 100, 20, 3, 3, None, None, None).estimate == 123
