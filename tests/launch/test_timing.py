"""Sessions of a study add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.launch.placement import Calibration, Placement
from kltune.launch.timing import FILE, note_session
from kltune.metrics.jsonl import read_json, write_json
from kltune.study.search_end import SearchEnd

TWO_WORKERS = Calibration(Placement(2, 2, 1), 0.2, 0.12, 197.0)


def test_two_sessions_add_up_and_the_mirror_counts_as_bookkeeping(tmp_path: Path) -> None:
    note_session(tmp_path, SearchEnd(None, 2, wall_s=100.0, trainer_s=97.0), 1.0)
    totals = note_session(tmp_path, SearchEnd(None, 1, wall_s=100.0, trainer_s=95.0), 1.0)
    assert totals["sessions"] == 2
    assert totals["wall_s"] == 200.0
    assert totals["bookkeeping_frac"] == pytest.approx((200 - 192 + 2) / 200)


def test_a_member_that_waits_for_others_adds_no_bookkeeping(tmp_path: Path) -> None:
    note_session(tmp_path, SearchEnd(None, 2, wall_s=100.0, trainer_s=97.0), 1.0)
    beside = SearchEnd(None, 0, wall_s=100.0, trainer_s=0.0, waiting_s=100.0)
    totals = note_session(tmp_path, beside, 0.0)
    assert (totals["wall_s"], totals["waiting_s"]) == (200.0, 100.0)
    assert totals["bookkeeping_frac"] == pytest.approx((100 - 97 + 1) / 100)


def test_the_latest_calibration_is_kept_whole(tmp_path: Path) -> None:
    note_session(tmp_path, SearchEnd(None, 2, 100.0, 97.0), 0.0, TWO_WORKERS)
    data = read_json(tmp_path / FILE)
    assert data["placement"] == {"workers": 2, "slots": 2, "threads": 1}
    assert (data["alone_step_s"], data["placed_step_s"], data["peak_gflops"]) == (0.2, 0.12, 197.0)
    given = Calibration(Placement(1, 4, 2), None, None, None)
    later = note_session(tmp_path, SearchEnd(None, 2, 50.0, 49.0), 0.0, given)
    assert later["placement"] == {"workers": 1, "slots": 4, "threads": 2}
    assert later["alone_step_s"] is None, "not measured there, so not carried over"


def test_worker_seconds_are_those_of_each_sessions_own_placement(tmp_path: Path) -> None:
    note_session(tmp_path, SearchEnd(None, 2, 100.0, 97.0), 0.0)
    totals = note_session(tmp_path, SearchEnd(None, 2, 50.0, 49.0), 0.0, TWO_WORKERS)
    assert totals["worker_s"] == 100.0 + 2 * 50.0


def test_a_file_from_before_there_were_workers_goes_on(tmp_path: Path) -> None:
    old = {"schema": 1, "sessions": 1, "wall_s": 80.0, "trainer_s": 78.0, "mirror_cpu_s": 1.0}
    write_json(tmp_path / FILE, {**old, "bookkeeping_frac": 0.0375})
    totals = note_session(tmp_path, SearchEnd(None, 1, 20.0, 19.0), 0.0, TWO_WORKERS)
    assert totals["wall_s"] == 100.0
    assert totals["worker_s"] == 80.0 + 2 * 20.0
