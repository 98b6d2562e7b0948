"""The penalties study: its figures, made of what was found."""

from __future__ import annotations

import sys

from penalties_case import analyse, made_up, steps_of
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-penalties"))

from penalties_figures import draw


def test_figures_are_made_of_what_was_found(tmp_path):
    runs = made_up()

    draw(runs, steps_of(runs), analyse(runs), tmp_path)

    assert {p.name for p in tmp_path.iterdir()} == {
        "dial.png",
        "frontier.png",
        "ends.png",
        "hump.png",
    }
