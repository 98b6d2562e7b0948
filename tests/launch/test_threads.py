"""Idle threads sleep early, unless the user's environment decides; limits of the machine are seen."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kltune.launch.threads import (
    SPIN_COUNT,
    allowed_threads,
    available_memory,
    share_cores,
    torch_threads,
)


def test_the_spin_count_is_set_where_nobody_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    share_cores()

    assert os.environ["GOMP_SPINCOUNT"] == SPIN_COUNT


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_the_users_environment_wins(monkeypatch: pytest.MonkeyPatch, name: str) -> None:

    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv(name, "ACTIVE")
    share_cores()
    assert os.environ[name] == "ACTIVE"
    assert (os.environ.get("GOMP_SPINCOUNT") == SPIN_COUNT) is False


def cgroup(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="ascii")
    return folder


def test_a_containers_share_of_the_cores_counts(tmp_path: Path) -> None:
    with torch_threads(2):
        here = allowed_threads(tmp_path)  # no such files: no limit
        assert 1 <= here <= 2
        assert allowed_threads(cgroup(tmp_path, cpu_max="max 100000\n")) == here
        assert allowed_threads(cgroup(tmp_path, cpu_max="100000 100000\n")) == 1
        assert allowed_threads(cgroup(tmp_path, cpu_max="50000 100000\n")) == 1
    with torch_threads(1):  # a user who says OMP_NUM_THREADS=1 gets one core
        assert allowed_threads(tmp_path) == 1


def test_a_containers_memory_counts_but_not_what_it_caches(tmp_path: Path) -> None:
    free = available_memory(tmp_path)
    assert free > 1e6
    stat = "anon 100000\ninactive_file 300000\n"
    limited = cgroup(tmp_path, memory_max="1000000\n", memory_current="500000\n", memory_stat=stat)
    assert available_memory(limited) == 800_000
    assert available_memory(cgroup(tmp_path, memory_max="max\n")) > 1e6


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


FAULTS = """
import resource, sys
import torch
from kltune.launch.threads import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
for _ in range(3):
    torch.ones(10_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(10_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="malloc is not glibc's"
)
def test_freed_blocks_are_kept_for_the_next_tensors() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}

    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, how]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return int(done.stdout)

    assert 2 * faults("keep") < faults("give back")
