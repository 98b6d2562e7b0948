from __future__ import annotations

import pytest

from kltune.statistics.agreement import Agreement
from kltune.statistics.drift import Drift, Interval
from kltune.transfer.result import Kind
from kltune.transfer.verdict import judge_agreement, judge_drift

SPAN = "from 0.09 M to 1.4 M parameters"


@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        ((0.6, 1.9), Kind.TRANSFERS),
        ((1.1, 1.9), Kind.TRANSFERS),  # surely off 1, and surely by less than 2
        ((0.4, 1.9), Kind.UNKNOWN),  # 1 is in it, which is not enough
        ((0.6, None), Kind.UNKNOWN),
        ((1.1, 2.4), Kind.SHIFTS),
        ((None, 0.9), Kind.SHIFTS),
        ((None, None), Kind.UNKNOWN),
    ],
)
def test_transferring_needs_the_whole_interval_within_the_margin(
    ends: tuple[float | None, float | None], kind: Kind
) -> None:
    factor = Interval(1.2, *ends)
    found, words = judge_drift("Best beta", SPAN, Drift(factor, (factor,), Interval(0.1)))
    assert found is kind
    assert words.startswith("Best beta")
    assert "0.09 M to 1.4 M parameters" in words


def test_two_sizes_that_part_stop_a_transfer_though_the_line_is_level() -> None:
    level, apart = Interval(1.0, 0.8, 1.25), Interval(4.0, 3.0, 5.0)
    kind, _ = judge_drift("Best beta", SPAN, Drift(level, (apart, level, apart), Interval(0.0)))
    assert kind is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("ends", "kind"),
    [((0.55, 0.99), Kind.TRANSFERS), ((-0.3, 0.4), Kind.SHIFTS), ((0.2, 0.99), Kind.UNKNOWN)],
)
def test_rankings_are_judged_by_the_whole_interval(ends: tuple[float, float], kind: Kind) -> None:
    found = Agreement(Interval(0.4, *ends), 0.3, (0.9, 0.9), 12, 66, 50)
    told, words = judge_agreement("small", "large", found)
    assert told is kind
    assert "50 of 66 pairs of settings are in the same order" in words


def test_settings_that_prompts_can_not_rank_are_said_to_be_so() -> None:
    found = Agreement(Interval(None, -1.0, 1.0), 0.0, (0.1, 0.0), 12, 66, 33)
    kind, words = judge_agreement("small", "large", found)
    assert kind is Kind.UNKNOWN
    assert "too close on these prompts" in words
    assert judge_agreement("small", "large", None)[0] is Kind.UNKNOWN
