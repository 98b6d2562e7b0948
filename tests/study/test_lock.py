from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kltune.errors import StudyError
from kltune.study.lock import lock_study, move_aside

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
