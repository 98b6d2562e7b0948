"""The controllers study: its figures, made of what was found."""

from __future__ import annotations

import sys

from controllers_case import made_up
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-controllers"))

from controllers_analysis import analyse
from controllers_figures import draw


def test_figures_are_made_of_what_was_found(tmp_path):
    found = analyse(*made_up(more_gold={"gain 1": 0.3, "gain 3": -0.3}))

    draw(*made_up(), found, tmp_path)

    names = {"gains.png", "tracking.png", "cures.png", "others.png"}
    assert {p.name for p in tmp_path.iterdir()} == names
