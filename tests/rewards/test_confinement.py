"""What a process can't take back once it is confined."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kltune.rewards import confinement

SCRIPT = f"""
import json, runpy, sys
confine = runpy.run_path({confinement.__file__!r})["confine"]
lost = confine(512 << 20, 1 << 20, 10, sys.argv[1])
said = {{"lost": lost}}
def tried(name, action):
    try:
        action()
        said[name] = "done"
    except (OSError, ValueError) as error:
        said[name] = type(error).__name__
import os, resource, socket
tried("inside", lambda: open(os.path.join(sys.argv[1], "a"), "w").close())
tried("outside", lambda: open(sys.argv[2], "w").close())
tried("network", socket.socket)
tried("more memory", lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)))
tried("reading", lambda: open(sys.executable, "rb").close())
print(json.dumps(said))
"""


def test_rights_are_gone_for_good_and_what_the_kernel_lacks_is_said(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    done = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT, str(inside), str(tmp_path / "outside")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert (said["inside"], said["reading"]) == ("done", "done")
    if said["lost"]:
        pytest.skip("; ".join(said["lost"]))
    assert (said["outside"], said["network"]) == ("PermissionError", "PermissionError")
    assert said["more memory"] in ("PermissionError", "ValueError")


def test_both_architectures_name_the_same_dangers() -> None:
    x86, arm = (calls for _, calls, _ in confinement._ARCHITECTURES.values())
    assert set(arm) <= set(x86)
    # aarch64 has these only in their *at forms
    assert set(x86) - set(arm) == {"chmod", "chown", "lchown", "fork", "vfork"}
