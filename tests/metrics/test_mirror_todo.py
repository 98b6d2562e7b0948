from __future__ import annotations

import time
from pathlib import Path

from kltune.metrics.mirror_todo import Closing, Todo


def closing(*, until: float = 10.0, at: float = 0.0, was_out: bool = False) -> Closing:
    now = time.monotonic()
    return Closing("KILLED", (), True, now + until, now + at, was_out)


def test_there_is_work_while_anything_is_on_the_list() -> None:
    assert not Todo().has_work()
    assert Todo(folders={Path("trials/1"): None}).has_work()
    assert Todo(closing=closing()).has_work()


def test_a_tracker_that_was_away_is_tried_once_and_any_other_for_seconds() -> None:
    assert closing().may_try_again(has_hope=False)
    assert not closing(was_out=True).may_try_again(has_hope=False)
    assert not closing(until=-1.0).may_try_again(has_hope=False)
    assert not closing(at=-7.0).may_try_again(has_hope=False)
    assert closing(was_out=True, at=-7.0).may_try_again(has_hope=True)
    assert not closing(until=-1.0).may_try_again(has_hope=True)
