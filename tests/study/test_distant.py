from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kltune.errors import StudyError
from kltune.study.crew import FOLDER, join
from kltune.study.distant import refuse_distant
from kltune.study.machine import this_machine
from kltune.study.storage import DATABASE, check_study, open_study
from tests.fake_bank import small_spec

ELSEWHERE = "another-boot/pid:[1]"


@contextmanager
def member_on(machine: str, folder: Path, *, age_s: float, is_locked: bool) -> Generator[None]:
    """The file of a member on ``machine``, whose latest sign is so old, with or without its lock."""
    path = folder / FOLDER / "distant.json"
    path.parent.mkdir(exist_ok=True)
    facts = {"id": "distant", "machine": machine, "pid": 1, "started": 1.0, "role": "sweep"}
    path.write_text(json.dumps(facts))
    sign = time.time() - age_s
    os.utime(path, (sign, sign))
    with path.open() as file:
        if is_locked:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    path.unlink()


@pytest.mark.parametrize(("age_s", "is_locked"), [(1e6, True), (5, False)])
def test_a_study_in_a_file_that_another_machine_works_in_is_refused(
    tmp_path: Path, age_s: float, is_locked: bool
) -> None:
    open_study(tmp_path, small_spec()).close()
    before = (tmp_path / DATABASE).read_bytes()
    with member_on(ELSEWHERE, tmp_path, age_s=age_s, is_locked=is_locked):
        for look in (open_study, check_study):
            with join(tmp_path, "worker"), pytest.raises(StudyError, match="--storage") as refused:
                look(tmp_path, small_spec())
            assert refused.value.exit_code == 2
            assert "another machine is at work" in str(refused.value)
    assert (tmp_path / DATABASE).read_bytes() == before
    check_study(tmp_path, small_spec())


def test_a_machine_that_died_or_was_started_anew_keeps_no_study_from_going_on(
    tmp_path: Path,
) -> None:
    with member_on(ELSEWHERE, tmp_path, age_s=1000, is_locked=False), join(tmp_path, "sweep"):
        refuse_distant(tmp_path, {})
        with pytest.raises(StudyError):
            refuse_distant(tmp_path, {"KLTUNE_LEASE": "600"})


def test_another_container_of_this_machine_is_no_other_machine(tmp_path: Path) -> None:
    container = f"{this_machine().partition('/')[0]}/pid:[7]"
    with member_on(container, tmp_path, age_s=0, is_locked=True):
        refuse_distant(tmp_path, {})
