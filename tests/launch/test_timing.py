"""Sessions of a study add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.launch.timing import note_session
from kltune.study.loop import SearchEnd


def test_two_sessions_add_up_and_the_mirror_counts_as_bookkeeping(tmp_path: Path) -> None:
    note_session(tmp_path, SearchEnd(None, 2, wall_s=100.0, trainer_s=97.0), 1.0)
    totals = note_session(tmp_path, SearchEnd(None, 1, wall_s=100.0, trainer_s=95.0), 1.0)
    assert totals["sessions"] == 2
    assert totals["wall_s"] == 200.0
    assert totals["bookkeeping_frac"] == pytest.approx((200 - 192 + 2) / 200)
