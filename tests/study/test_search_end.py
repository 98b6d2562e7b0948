from __future__ import annotations

from kltune.study.search_end import SearchEnd


def test_what_is_not_the_trainer_is_bookkeeping() -> None:
    assert SearchEnd(None, 3, wall_s=100.0, trainer_s=97.5).bookkeeping_s == 2.5


def test_waiting_for_other_members_is_no_bookkeeping() -> None:
    end = SearchEnd(None, 3, wall_s=100.0, trainer_s=37.5, waiting_s=60.0)
    assert end.bookkeeping_s == 2.5
