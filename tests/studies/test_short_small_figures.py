"""The figures of the study of short and small looks."""

from __future__ import annotations

import sys

import pandas as pd
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-short-small"))

from short_small_case import analysed, made_up
from short_small_figures import draw


def test_figures_are_made_of_what_was_found(tmp_path):
    draw(made_up(), pd.DataFrame(), analysed(), tmp_path)

    assert {p.name for p in tmp_path.iterdir()} == {"gold.png", "regret.png"}
