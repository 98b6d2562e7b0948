"""The controllers study: the tables of its README, made of what was found."""

from __future__ import annotations

import sys

from controllers_case import made_up
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-controllers"))

import experiment
from controllers_analysis import analyse
from controllers_tables import _less_words, tables


def test_tables_are_made_of_what_was_found(tmp_path):
    found = analyse(*made_up(more_gold={"gain 1": 0.3, "gain 3": -0.3}))
    experiment.write_results(found, tmp_path / "results.json")

    written = tables(experiment.read_results(tmp_path))

    assert written["beta"].count("\n") == 1 + 17
    assert written["cures"].count("\n") == 1 + 7  # two gains: without, floor, near; a fixed beta
    assert written["cures-compared"].count("\n") == 1 + 6
    assert "nan" not in "".join(written.values())


def test_a_difference_of_runs_that_never_get_there_is_no_result():
    zero = {"mean": 0.0, "low": 0.0, "high": 0.0, "half": 0.0, "num": 8}

    assert _less_words(zero) == "no run of either"
    assert _less_words({**zero, "low": -1.0, "high": 1.0, "half": 1.0}) == "0.000 (-1.000 to 1.000)"
    assert _less_words(None) == "-"
