from __future__ import annotations

import pytest

from kltune.trainer.rows import Rows


def test_every_row_belongs_to_one_slot_and_one_purpose() -> None:
    rows = Rows(3, has_critic=True, has_reference=True)
    assert rows.total == 9
    assert rows.critics((0, 2)) == (3, 5)
    assert rows.references((0, 2)) == (6, 8)
    owned = [row for slot in range(3) for row in rows.of(slot)]
    assert sorted(owned) == list(range(9))
    assert rows.of(1) == (1, 4, 7)


def test_a_moving_reference_needs_no_critic() -> None:
    rows = Rows(2, has_critic=False, has_reference=True)
    assert (rows.total, rows.references((1,)), rows.of(0)) == (4, (3,), (0, 2))
    assert Rows(2, has_critic=False, has_reference=False).of(1) == (1,)


@pytest.mark.parametrize("what", ["critics", "references"])
def test_what_is_not_there_has_no_rows(what: str) -> None:
    with pytest.raises(AssertionError):
        getattr(Rows(2, has_critic=False, has_reference=False), what)((0,))
