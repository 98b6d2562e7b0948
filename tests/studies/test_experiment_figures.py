"""Figures of the studies: their size, and the ends of an interval that is drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies_case import STUDIES

sys.path.insert(0, str(STUDIES))  # as the scripts do it

from experiment_figures import interval_across, interval_up, save_figure

ONE = {"mean": 2.0, "low": 1.5, "high": 4.0}


def test_a_figure_has_the_pixels_that_were_asked_for(tmp_path: Path) -> None:
    from matplotlib.image import imread

    save_figure(tmp_path / "a.png", 3, 2, lambda figure: figure.add_subplot())
    assert imread(tmp_path / "a.png").shape[:2] == (2 * 150, 3 * 150)


@pytest.fixture
def axes() -> Any:
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def drawn(axes: Any) -> tuple[list[list[float]], list[list[float]]]:
    """Where the only interval's mean lies, and its two ends."""
    (container,) = axes.containers
    point, _, (line,) = container
    return point.get_xydata().tolist(), np.concatenate(line.get_segments()).tolist()


def test_an_interval_is_drawn_upright_from_its_low_to_its_high_end(axes: Any) -> None:
    interval_up(axes, 7, ONE, fmt="o")
    assert drawn(axes) == ([[7, 2]], [[7, 1.5], [7, 4]])


def test_an_interval_is_drawn_across_from_its_low_to_its_high_end(axes: Any) -> None:
    interval_across(axes, 7, ONE, fmt="o")
    assert drawn(axes) == ([[2, 7]], [[1.5, 7], [4, 7]])
