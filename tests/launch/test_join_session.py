"""How a worker finds its way in; whole runs are in tests/e2e/test_members.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from spec_files import minimal, write

from kltune.errors import StudyError
from kltune.launch.join import Entrance
from kltune.launch.join_session import run_worker
from kltune.launch.request import JoinRequest
from kltune.launch.signals import StopRequest
from kltune.spec.load import load_spec
from tests.standing_case import held_by_another_process


def test_a_worker_that_is_told_to_stop_while_another_sets_up_leaves_nothing(tmp_path: Path) -> None:
    study, said = tmp_path / "s", list[str]()
    given = load_spec(write(tmp_path, minimal()))
    stop = StopRequest(0.5, said.append)
    with held_by_another_process(study):
        code = run_worker(JoinRequest("x.yaml"), Entrance(study, given), stop, sys.stdout)
        assert code == 0  # a wall budget that ended early is a normal end
        assert [path.name for path in study.iterdir()] == [".lock"]


def test_a_worker_is_refused_a_folder_in_which_another_command_is_at_work(tmp_path: Path) -> None:
    (tmp_path / "confirm.py").touch()
    code = (
        "import sys\nfrom pathlib import Path\nfrom kltune.study.lock import lock_study\n"
        "with lock_study(Path(sys.argv[3])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    study = tmp_path / "s"
    # Its command line reads like that of `kltune confirm`.
    words = [sys.executable, "-c", code, "kltune", "confirm", str(study)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        given = load_spec(write(tmp_path, minimal()))
        stop = StopRequest(20.0, lambda reason: None)
        with pytest.raises(StudyError, match=r"^kltune confirm is working in "):
            run_worker(JoinRequest("x.yaml"), Entrance(study, given), stop, sys.stdout)
        process.communicate()
