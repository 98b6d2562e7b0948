"""The environment of a study: versions, commit and hardware in, ``env.json`` out.

Holds what a reader needs to judge or repeat the numbers, and nothing about the person: no
user, no host, no home folder, no environment variable.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

import kltune
from kltune.metrics.jsonl import write_json
from kltune.metrics.tracker import redact

_PACKAGES = ("torch", "transformers", "accelerate", "optuna", "mlflow", "numpy", "pydantic")
_GIB = 2**30


def write_env(study_path: Path, device: Mapping[str, str], command: Sequence[str] = ()) -> None:
    """Write ``env.json``; ``device`` is what the trainer says about its device, in words.

    ``command``: the words that started the study, so that they can be typed again.
    """
    facts = environment(device)
    home = str(Path.home())
    words = [redact(word).replace(home, "~") for word in command]
    write_json(study_path / "env.json", {**facts, **({"command": words} if words else {})})


def environment(device: Mapping[str, str]) -> dict[str, object]:
    """Describe this process: versions, git commit of the current folder, CPUs and memory (GiB)."""
    home = str(Path.home())
    return {
        "kltune": kltune.__version__,
        "python": platform.python_version(),
        "packages": {name: _installed(name) for name in _PACKAGES},
        "git": _git(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / _GIB, 1),
        "device": {key: value.replace(home, "~") for key, value in device.items()},
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git() -> dict[str, object] | None:
    """Commit of the current folder and whether tracked files differ from it; none outside git."""
    commit = _ask_git("rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _ask_git("status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changes)}


def _ask_git(*words: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
