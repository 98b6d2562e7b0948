"""The figures of the over-optimisation study."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-law"))

import law_figures
from law_arms import NO_KL
from law_runs import runs_of
from law_study_case import START, analysed, bon_tables, made_up, made_up_penalties
from matplotlib.figure import Figure


@pytest.mark.parametrize("shipped", [made_up_penalties(), None])
def test_figures_are_made_of_what_was_found(tmp_path: Path, shipped):
    law_figures.draw(made_up(), bon_tables()[0], shipped, analysed(), tmp_path)

    assert {p.name for p in tmp_path.glob("*.png")} == {"law.png", "quality.png", "beta.png"}


def test_panels_of_gold_by_kl_share_their_axes():
    figure = Figure()
    runs = {level: runs_of(made_up(), level, NO_KL, START) for level in analysed()["levels"]}
    law_figures._draw_law(figure, law_figures._names_by_axis(), runs, analysed())
    assert len({(panel.get_xlim(), panel.get_ylim()) for panel in figure.axes}) == 1


def test_the_band_is_as_wide_as_the_interval_and_closed_at_the_start():
    """t(1) is 12.706, and the error of a mean of 1 and 3 is 1."""
    half = law_figures._half_widths(np.array([[0.2, 1.0], [0.2, 3.0]]))

    assert half == pytest.approx([0.0, 12.706], abs=1e-3)
