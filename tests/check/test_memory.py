from __future__ import annotations

from dataclasses import replace

import pytest
import soundness_case as case

from kltune.check.memory import mebibytes, memory_line
from kltune.grade import Grade

MIB = 2**20


@pytest.mark.parametrize(
    ("free", "grade"),
    [
        (8000 * MIB, Grade.PASS),
        (63 * MIB, Grade.PASS),
        (60 * MIB, Grade.WARN),
        (40 * MIB, Grade.WARN),
        (19 * MIB, Grade.FAIL),
        (0, Grade.FAIL),
        (None, Grade.PASS),
    ],
)
def test_what_is_needed_beside_the_base_is_held_against_what_is_free(
    free: int | None, grade: Grade
) -> None:  # 20 MiB of adapters, 30 of a step
    line = memory_line(replace(case.memory(), free=free))
    assert line.grade is grade
    assert bool(line.remedy) is (grade is not Grade.PASS)
    assert "60 MiB for 4 trials at once" in line.shown


def test_bytes_are_readable() -> None:
    assert (mebibytes(3 * MIB), mebibytes(3 * 2**30)) == ("3 MiB", "3.0 GiB")
