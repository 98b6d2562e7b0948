"""Offline means offline (field case D8): a local model trains without a socket, and what is absent is named at once."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from e2e.cli import command

from kltune.trial.record import read_trials

pytestmark = pytest.mark.slow

BASE = Path(__file__).parents[2] / "kltune" / "tasks" / "kitchen" / "weights" / "base"
GUARD = """
import socket

_LOCAL = ("127.0.0.1", "::1", "localhost")


def _tell(address):
    with open({log!r}, "a") as file:
        file.write(repr(address) + "\\n")
    raise OSError(101, "Network is unreachable")


def _guarded(name):
    plain = getattr(socket.socket, name)

    def connect(self, address):
        if self.family != socket.AF_UNIX and address[0] not in _LOCAL:
            _tell(address)
        return plain(self, address)

    return connect


socket.socket.connect = _guarded("connect")
socket.socket.connect_ex = _guarded("connect_ex")
_look_up = socket.getaddrinfo


def _getaddrinfo(host, *args, **kwargs):
    if host not in (None, *_LOCAL):
        _tell(host)
    return _look_up(host, *args, **kwargs)


socket.getaddrinfo = _getaddrinfo
"""


def _children_s() -> float:
    """Of all processes that ended: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def blocked(
    folder: Path, *args: str | Path, offline: str = "1"
) -> tuple[subprocess.CompletedProcess[str], float, list[str]]:
    """The command with every way out blocked; processor seconds that it took, and what it tried to reach."""
    log = folder / "reached.txt"
    log.unlink(missing_ok=True)
    (folder / "guard").mkdir(exist_ok=True)
    text = GUARD.format(log=str(log)).replace("{{", "{").replace("}}", "}")
    (folder / "guard" / "sitecustomize.py").write_text(text, encoding="utf-8")
    kept = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    environment = {
        **kept,
        "PYTHONPATH": str(folder / "guard"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": offline,
        "HF_HOME": str(folder / "cache"),
    }
    began = _children_s()
    done = subprocess.run(
        command(*args),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
        cwd=folder,
    )
    reached = log.read_text().splitlines() if log.exists() else []
    return done, _children_s() - began, reached


def spec(folder: Path, base: str, **task: object) -> Path:
    (folder / "rewards.py").write_text(
        "def gold(completions):\n    return [float(len(c)) for c in completions]\n"
        "def proxy(completions):\n    return [float(c.count('e')) for c in completions]\n"
    )
    (folder / "prompts.txt").write_text("".join(f"how long , {i} ?\n" for i in range(24)))
    found = {
        "name": "own",
        "task": {
            "prompts": "prompts.txt",
            "gold": "rewards.py:gold",
            "proxy": "rewards.py:proxy",
            **task,
        },
        "model": {"base": base},
        "trainer": {"steps": 2, "prompts": 2, "group_size": 4, "max_new_tokens": 8},
        "search": {"beta": {"log": [0.01, 1]}},
        "evaluate": {"every": 1, "prompts": 4, "samples": 1},
        "budget": {"trials": 1},
    }
    path = folder / "own.yaml"
    path.write_text(json.dumps(found), encoding="utf-8")
    return path


@pytest.mark.parametrize("offline", ["1", "0"])
def test_a_local_model_trains_without_a_socket(tmp_path: Path, offline: str) -> None:
    shutil.copytree(BASE, tmp_path / "mine")
    done, _, reached = blocked(tmp_path, "sweep", spec(tmp_path, "mine"), offline=offline)
    assert done.returncode == 0, done.stderr
    assert reached == []
    (record,) = read_trials(tmp_path / "studies" / "own")
    assert len(record.steps) == 2


@pytest.mark.parametrize(
    ("base", "code", "named"),
    [
        ("./mine", 2, "mine"),
        ("models/mine", 5, "models/mine"),
        ("someone/model-1b", 5, "someone/model-1b"),
    ],
)
def test_a_model_that_is_not_there_is_named_at_once(
    tmp_path: Path, base: str, code: int, named: str
) -> None:
    done, _, reached = blocked(tmp_path, "sweep", spec(tmp_path, base))
    assert done.returncode == code, done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error")]) == 1
    assert reached == []


def test_a_folder_that_is_not_there_is_named_within_five_seconds(tmp_path: Path) -> None:
    done, seconds, reached = blocked(tmp_path, "sweep", spec(tmp_path, "./mine"))
    assert str(tmp_path / "mine") in done.stderr
    assert seconds < 5.0
    assert reached == []


def test_a_reward_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "mine")
    path = spec(tmp_path, "mine", gold={"model": "someone/reward-1b"})
    done, _, reached = blocked(tmp_path, "sweep", path)
    assert done.returncode == 5, done.stderr
    assert "task.gold" in done.stderr
    assert "someone/reward-1b" in done.stderr
    assert reached == []
