"""The picture is written, whatever is in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confirm_case import judged, result_of

from kltune.confirm.plot import save_plot


@pytest.mark.parametrize("means", [[1.0, 1.0, 0.2, 0.0], [1.0, 0.5]])
def test_a_png_is_written(tmp_path: Path, means: list[float]) -> None:
    save_plot(result_of(judged(means)), tmp_path / "below" / "confirm.png")
    assert (tmp_path / "below" / "confirm.png").read_bytes().startswith(b"\x89PNG")
