"""The tables of the study of short and small looks."""

from __future__ import annotations

import sys

from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-short-small"))

from short_small_case import analysed
from short_small_tables import tables


def test_tables_are_made_of_what_was_found():
    written = tables(analysed())

    assert written["arms-stopped"].count("\n") == 1 + 4
    for name in ("looks-stopped", "looks-at-end", "looks-stop"):
        assert written[name].count("\n") == 1 + 4 * 3
    assert written["seeds"].count("\n") == 1 + 4 * 3 * 4
    assert written["other"].count("\n") == 1 + 4 * 2 * 3
    assert "no KL 100 %" in written["looks-at-end"]
    assert "nan" not in "".join(written.values())
