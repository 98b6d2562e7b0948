from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_transfer import result, subject

from kltune.transfer.compare import compare_sizes
from kltune.transfer.plot import save_plot


@pytest.mark.parametrize("factor", [1.0, 6.0])
def test_the_picture_is_drawn(tmp_path: Path, factor: float) -> None:
    save_plot(result(factor), tmp_path / "new" / "transfer.png")
    assert (tmp_path / "new" / "transfer.png").read_bytes().startswith(b"\x89PNG")


def test_a_comparison_that_says_nothing_is_drawn_as_well(tmp_path: Path) -> None:
    nothing = [replace(subject(size), trials=()) for size in ("small", "large")]
    save_plot(compare_sizes(nothing, 0), tmp_path / "transfer.png")
    assert (tmp_path / "transfer.png").is_file()
