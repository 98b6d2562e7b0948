from __future__ import annotations

from pathlib import Path

import pytest
from preview_case import forecast_of, hump, opposite, same, scored

from kltune.preview.plot import save_plot


@pytest.mark.parametrize("gold_of", [hump, opposite, same])
def test_every_verdict_can_be_drawn(tmp_path: Path, gold_of) -> None:
    path = tmp_path / "new" / "preview.png"
    save_plot(forecast_of(scored(gold_of)), path)
    assert path.read_bytes().startswith(b"\x89PNG")
