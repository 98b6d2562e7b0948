from __future__ import annotations

from pathlib import Path

import fake_audit
import pytest

from kltune.audit.plot import save_plot


@pytest.mark.parametrize("noise", [0.15, 0.0, 5.0])
def test_a_picture_is_written_whatever_can_be_told(tmp_path: Path, noise: float) -> None:
    path = tmp_path / "new" / "audit.png"
    save_plot(fake_audit.result(noise), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000
