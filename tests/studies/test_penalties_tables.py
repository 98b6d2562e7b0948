"""The penalties study: the tables of its README, made of what was found."""

from __future__ import annotations

import sys

from penalties_case import analyse, made_up
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-penalties"))

from penalties_tables import tables


def test_tables_are_made_of_what_was_found():
    written = tables(analyse(made_up()))

    assert written["settings"].count("\n") == 1 + 17
    assert written["dial"].count("\n") == 1 + 4 + 6
    assert written["pooled-none"].count("\n") == 1 + 4
    assert written["matched-k1"].count("\n") == 1 + 4 * 5
    assert "nan" not in "".join(written.values())


def test_a_claim_says_who_published_it_once_and_which_rule_came_before_the_data():
    rows = [line.split(" | ") for line in tables(analyse(made_up()))["claims"].splitlines()[2:]]

    assert len(rows) == 2 + 2 + 2 + 2 + 2 + 2
    assert sum("arxiv.org" in row[0] for row in rows) == 5
    assert [row[2] for row in rows] == ["before"] * 6 + ["afterwards"] * 6
    does_nothing = [row for row in rows if "about as no KL" in row[0]]
    assert "Liu et al." in does_nothing[0][0]


def test_a_cell_of_too_few_seeds_shows_no_interval():
    results = analyse(made_up())
    cell = results["matched"]["pooled_to_none"]["levels"]["3"]["gold"]
    cell["coarse"] = {"pairs": 3, "num": 2, "mean": 1.0, "low": 0.5, "high": 1.5}

    last = tables(results)["pooled-none"].splitlines()[-1]

    assert last.split(" | ")[2] == "too few [2, 3]"
