from __future__ import annotations

import fcntl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kltune.errors import StudyError
from kltune.study.lock import claim_study, lock_study, move_aside

HOLD = """
import sys
from pathlib import Path
from kltune.study.lock import lock_study
with lock_study(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_kltune_in_the_same_study_is_refused_and_the_first_is_named(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(StudyError, match=rf"another kltune is working in .*process {other.pid}"),
            lock_study(tmp_path),
        ):
            pass
        with pytest.raises(StudyError, match="another kltune is working in"):
            move_aside(tmp_path)
        other.kill()  # no clean-up: the lock must be free all the same
        other.wait()
    with lock_study(tmp_path):
        pass


def test_the_lock_is_free_again_after_use(tmp_path: Path) -> None:
    for _ in range(2):
        with lock_study(tmp_path / "new"):
            assert (tmp_path / "new" / ".lock").exists()


def test_a_folder_that_was_made_for_the_lock_alone_is_taken_back(tmp_path: Path) -> None:
    with lock_study(tmp_path / "a" / "new"):
        pass
    assert not list(tmp_path.iterdir())
    with lock_study(tmp_path / "a" / "new"):
        (tmp_path / "a" / "new" / "study.db").touch()
    assert (tmp_path / "a" / "new" / "study.db").exists()
    (tmp_path / "mine").mkdir()
    with lock_study(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine").is_dir()


def test_a_lock_that_was_taken_back_meanwhile_is_not_taken_for_the_study_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever locks a file that is gone holds nothing; the one in its place is locked instead."""
    study, calls, real = tmp_path / "s", list[int](), fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:  # the first holder ends just now and takes its folder back
            (study / ".lock").unlink()
            study.rmdir()
        real(descriptor, how)

    monkeypatch.setattr("kltune.study.lock.fcntl.flock", flock)
    with lock_study(study):
        with pytest.raises(StudyError, match="another kltune is working"), lock_study(study):
            pass
        assert (study / ".lock").exists()
    assert len(calls) == 3


def test_a_study_that_is_claimed_before_its_folder_exists_is_held(tmp_path: Path) -> None:
    study = tmp_path / "s"
    for fresh in (False, True):
        with claim_study(study, fresh=fresh) as make_room:
            for again in (False, True):
                with (
                    pytest.raises(StudyError, match="another kltune is working"),
                    claim_study(study, fresh=again),
                ):
                    pass
            assert make_room() is None


def test_fresh_holds_the_old_study_until_it_is_aside_and_then_the_new_one(tmp_path: Path) -> None:
    study = tmp_path / "s"
    study.mkdir()
    (study / "study.db").touch()
    with claim_study(study, fresh=True) as make_room:
        old = make_room()
        assert old is not None
        assert (old / "study.db").exists()
        with lock_study(old):  # free again
            pass
        with pytest.raises(StudyError, match="another kltune is working"), lock_study(study):
            pass


def test_fresh_leaves_a_folder_of_something_else_without_a_lock(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    with pytest.raises(StudyError, match="leaves it alone"), claim_study(tmp_path, fresh=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["main.py"]


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study"
    path.write_text("mine")
    with pytest.raises(StudyError, match="can't be used as a study folder"), lock_study(path):
        pass
    assert path.read_text() == "mine"


def test_fresh_moves_the_old_study_aside_and_never_overwrites(tmp_path: Path) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for content in ("one", "two"):
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "report.md").write_text(content)
        (tmp_path / "s" / "study.db").touch()
        move_aside(tmp_path / "s", now)
    assert move_aside(tmp_path / "s", now) is None
    assert (tmp_path / "s.old-20260102-030405" / "report.md").read_text() == "one"
    assert (tmp_path / "s.old-20260102-030405-2" / "report.md").read_text() == "two"


def test_a_folder_that_is_no_study_is_not_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").write_text("print(1)\n", encoding="utf-8")
    with pytest.raises(StudyError, match="leaves it alone"):
        move_aside(tmp_path / "code")
    assert (tmp_path / "code" / "main.py").exists()
