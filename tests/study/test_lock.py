from __future__ import annotations

import fcntl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kltune.errors import StudyError
from kltune.study.crew import join
from kltune.study.lock import claim_study, enter_study, lock_study, move_aside
from tests.members_case import member_process

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
        with claim_study(study, fresh=fresh) as claim:
            for again in (False, True):
                with (
                    pytest.raises(StudyError, match="another kltune is working"),
                    claim_study(study, fresh=again),
                ):
                    pass
            assert claim.make_room() is None


def test_fresh_holds_the_old_study_until_it_is_aside_and_then_the_new_one(tmp_path: Path) -> None:
    study = tmp_path / "s"
    study.mkdir()
    (study / "study.db").touch()
    with claim_study(study, fresh=True) as claim:
        old = claim.make_room()
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


def test_beside_members_nobody_has_the_study_alone_and_the_sentence_says_how_to_join(
    tmp_path: Path,
) -> None:
    with member_process(tmp_path, "sweep") as lead, member_process(tmp_path):
        said = rf"another kltune is working in \S+ \(process {lead.pid}, 1 worker\); .*`kltune worker \S+`$"
        with pytest.raises(StudyError, match=said), lock_study(tmp_path):
            pass
        with pytest.raises(StudyError, match="another kltune"), claim_study(tmp_path):
            pass
    with (
        member_process(tmp_path),
        member_process(tmp_path),
        pytest.raises(StudyError, match=r"\(2 workers\)"),
        lock_study(tmp_path),
    ):
        pass
    with lock_study(tmp_path):
        pass


def test_a_lead_shares_its_lock_and_whoever_slips_in_lets_go(tmp_path: Path) -> None:
    """A lock that becomes a shared one is free for a moment; the lead's own file is what counts then."""
    with join(tmp_path, "sweep"):
        # As in that moment: nobody has the lock, the lead works.
        with pytest.raises(StudyError, match="another kltune is working"), lock_study(tmp_path):
            pass
        with enter_study(tmp_path, lambda: True, lambda: False) as hold:
            assert hold is not None
            assert hold.is_shared


def test_whoever_is_first_sets_up_and_the_others_wait(tmp_path: Path) -> None:
    study, asked = tmp_path / "s", list[bool]()

    def is_set_up() -> bool:
        return (study / "made").exists()

    def wait() -> bool:
        asked.append(True)
        if len(asked) == 2:
            (study / "made").touch()
            assert first is not None
            first.share()
        return True

    with enter_study(study, is_set_up, wait) as first:
        assert first is not None
        assert not first.is_shared
        with enter_study(study, is_set_up, lambda: False) as nothing:
            assert nothing is None
        with enter_study(study, is_set_up, wait) as second:
            assert second is not None
            assert second.is_shared
    assert len(asked) == 2


def test_a_study_that_was_given_up_before_it_was_set_up_is_set_up_by_the_next(
    tmp_path: Path,
) -> None:
    study = tmp_path / "s"
    for _ in range(2):
        with enter_study(study, lambda: False, lambda: False) as hold:
            assert hold is not None
            assert not hold.is_shared
        assert not study.exists()


def test_exactly_the_last_to_leave_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "made").touch()
    with (
        enter_study(tmp_path, lambda: True, lambda: False) as one,
        enter_study(tmp_path, lambda: True, lambda: False) as two,
        enter_study(tmp_path, lambda: True, lambda: False) as three,
    ):
        assert one is not None
        assert two is not None
        assert three is not None
        assert [two.leave(), one.leave(), three.leave()] == [False, False, True]
        with pytest.raises(StudyError, match="another kltune"), lock_study(tmp_path):
            pass  # the last one holds it alone: it writes the report
    with lock_study(tmp_path):
        pass


def test_members_change_a_small_file_one_after_the_other(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom kltune.study.lock import briefly_alone\n"
        "study = Path(sys.argv[1])\n"
        "for _ in range(20):\n    with briefly_alone(study):\n"
        "        number = int((study / 'n').read_text())\n        time.sleep(0.001)\n"
        "        (study / 'n').write_text(str(number + 1))\n"
    )
    (tmp_path / "n").write_text("0")
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert (tmp_path / "n").read_text() == "40"
