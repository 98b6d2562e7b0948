"""The tables of the over-optimisation study."""

from __future__ import annotations

import sys

from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

from law_arms import LEVELS
from law_study_case import analysed
from law_tables import tables


def test_tables_are_made_of_what_was_found():
    written = tables(analysed())

    assert written["levels"].count("\n") == 1 + len(LEVELS)
    assert written["frontier"].count("\n") == 1 + 4
    assert written["speed"].count("\n") == 1 + 4
    assert "nan" not in "".join(written.values())
