"""The over-optimisation study scaled down."""

from __future__ import annotations

import sys

import pytest
from studies_case import STUDIES, load_script, run_small

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

from law_arms import NO_KL, PENALTY_ARMS, SMALL_LEVELS, block_name, level_of


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return run_small("2026-11-30-law", tmp_path_factory.mktemp("law"))


@pytest.mark.slow
class TestScaledDown:
    def test_a_proxy_that_sees_more_gets_more_gold_out_of_the_same_steps(self, small):
        few, many = (small["levels"][level_of(block_name(p, 0))] for p in SMALL_LEVELS)

        assert many["agreement"]["mean"] > few["agreement"]["mean"] + 0.05
        assert many["peak"]["highest"]["mean"] > few["peak"]["highest"]["mean"] + 0.1
        assert many["best_of_n"]["peak"]["gain"]["mean"] > few["best_of_n"]["peak"]["gain"]["mean"]


def test_the_runs_under_the_shipped_proxy_are_those_of_the_study_of_penalties(
    monkeypatch, tmp_path
):
    script = load_script("2026-11-30-law")
    there = script.penalty_runs()
    assert {NO_KL, *PENALTY_ARMS} <= set(there["arm"])
    assert {*range(100, 108)} == set(there["seed"])

    monkeypatch.setattr(script, "PENALTIES", tmp_path / "runs.csv")
    assert script.penalty_runs() is None
