"""The study of recipes: what is found in made-up runs, and the verdicts."""

from __future__ import annotations

import math
import sys

import pytest
from studies_case import STUDIES

from kltune.statistics.arms import MeanInterval
from tests.recipes_case import made

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-recipes"))

from recipes_analysis import PAIRS, analyse
from recipes_arms import LATE, TUNED
from recipes_verdicts import MARGIN, verdict

NO_BLOCKS = {"blocks": {}}


def interval(low: float, high: float) -> MeanInterval:
    return MeanInterval((low + high) / 2, low, high, 0.1, 8)


def test_a_verdict_is_what_was_put_in() -> None:
    truth = {
        "no KL": (0.0, 20.0),
        TUNED: (1.0, 2.0),
        "stiennon": (0.98, 20.0),
        "comedy-high": (0.98, 5.0),
        "verl-ppo": (-1.0, 30.0),
    }
    found = analyse(*made(truth), NO_BLOCKS)
    verdicts = {arm: one.get("verdict") for arm, one in found["arms"].items()}
    assert verdicts == {
        "no KL": None,
        TUNED: None,
        "comedy-high": "keeps gold",
        "stiennon": "keeps gold",
        "verl-ppo": "less gold",
    }
    assert found["lower_kl"]["arms"] == ["comedy-high"]
    assert found["lower_kl"]["least"] == found["lower_kl"]["most"] == pytest.approx(0.25, abs=0.02)
    assert found["published_settings"] == 3
    assert found["first_rule"]["harms"]["arms"] == ["verl-ppo"]
    assert found["first_rule"]["holds"]["arms"] == [TUNED, "comedy-high", "stiennon"]
    assert found["runs"] == 40
    assert found["units"] == {}
    # Gold starts at 0; the mean of the last two evaluations of what ends at 1 is 1.
    assert found["gain_of_tuned"]["mean"] == pytest.approx(1.0, abs=0.01)


def test_scatter_earns_no_verdict() -> None:
    truth = {"no KL": (0.0, 20.0), TUNED: (1.0, 2.0), "stiennon": (1.0, 5.0)}
    steady = analyse(*made(truth), NO_BLOCKS)
    scattered = analyse(*made(truth, own={"stiennon": 1.0}), NO_BLOCKS)
    assert steady["arms"]["stiennon"]["verdict"] == "keeps gold"
    assert scattered["arms"]["stiennon"]["end_minus_tuned"]["low"] < -MARGIN
    assert scattered["arms"]["stiennon"]["verdict"] == "can't be told"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-MARGIN + 0.01, 0.5, "keeps gold"),
        (-MARGIN - 0.01, 0.5, "can't be told"),
        (-MARGIN - 0.01, -0.01, "less gold"),
        (-MARGIN + 0.01, -0.01, "keeps gold"),  # below, but certainly by less than what matters
        (-0.5, 0.01, "can't be told"),
    ],
)
def test_the_margin_decides(low: float, high: float, expected: str) -> None:
    assert verdict(interval(low, high)) == expected


def test_the_late_setting_widens_no_other_interval() -> None:
    truth = {"no KL": (0.0, 20.0), TUNED: (1.0, 2.0), "verl-ppo": (-1.0, 30.0)}
    without = analyse(*made(truth), NO_BLOCKS)["arms"]
    found = analyse(*made({**truth, LATE: (-1.0, 30.0)}), NO_BLOCKS)["arms"]
    others = {arm: one["run_late"] for arm, one in found.items()}
    assert others == {"no KL": False, TUNED: False, "verl-ppo": False, LATE: True}
    mine, its = found["verl-ppo"]["end_minus_tuned"], found[LATE]["end_minus_tuned"]
    before = without["verl-ppo"]["end_minus_tuned"]
    # Three intervals hold at once for the late one where two did: t(7) at .025/3 over t(7) at .025/2.
    width = {n: (one["high"] - one["low"]) / one["sd"] for n, one in (("2", mine), ("3", its))}
    assert width["2"] == pytest.approx((before["high"] - before["low"]) / before["sd"])
    assert width["2"] == pytest.approx(2 * 2.8412 / math.sqrt(8), rel=1e-3)
    assert width["3"] == pytest.approx(2 * 3.1276 / math.sqrt(8), rel=1e-3)
    assert found[LATE]["verdict"] == "less gold"
    assert "first_rule" not in found[LATE]


def test_by_the_first_rule_no_difference_is_inert() -> None:
    truth = {"no KL": (0.0, 20.0), TUNED: (0.0, 20.0), "stiennon": (0.0, 5.0)}
    found = analyse(*made(truth), NO_BLOCKS)
    rules = {arm: one.get("first_rule") for arm, one in found["arms"].items()}
    assert rules == {"no KL": None, TUNED: "inert", "stiennon": "slows"}


def test_a_rule_is_compared_with_the_beta_that_it_starts_from() -> None:
    truth = {
        "no KL": (0.0, 20.0),
        TUNED: (1.0, 2.0),
        "instructgpt": (0.4, 5.0),
        "target = warm-up median": (0.9, 3.0),
    }
    found = analyse(*made(truth), NO_BLOCKS)["pairs"]
    (name,) = found
    assert name == "target = warm-up median less instructgpt"
    # The last two evaluations weigh the ends by 1 and (55/60)^3: a difference of .5 counts .4426.
    assert found[name]["mean"] == pytest.approx(0.5 * (1 + (55 / 60) ** 3) / 2, abs=0.05)
    starting_at_002 = {rule for rule, fixed in PAIRS if fixed == "instructgpt"}
    assert {"target = warm-up median", "target 0.1, 0.05, 0.03"} <= starting_at_002
