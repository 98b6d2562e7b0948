"""Small valid specs for tests: a dict to change, and a file of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kltune.errors import SpecError
from kltune.spec.load import load_spec


def minimal() -> dict[str, Any]:
    """The smallest spec: only what is needed."""
    return {
        "name": "small",
        "task": "kitchen",
        "model": {"base": "builtin:kitchen"},
        "trainer": {"steps": 20, "prompts": 2, "group_size": 4},
        "search": {"beta": {"log": [0.001, 1]}},
        "budget": {"trials": 4},
    }


def adaptive() -> dict[str, Any]:
    """A spec whose controller can be proportional."""
    spec = minimal()
    when = {"controller": "proportional"}
    spec["search"] |= {
        "controller": {"choice": ["fixed", "proportional"]},
        "target_kl": {"log": [0.01, 0.1], "when": when},
        "horizon": {"log": [8, 64], "when": when},
    }
    return spec


def own_task(folder: Path) -> dict[str, Any]:
    """A spec whose task is files in ``folder``."""
    (folder / "prompts.txt").write_text("one\ntwo\nthree\nfour\n", encoding="utf-8")
    code = "def proxy(completions): ...\ndef gold(completions): ...\n"
    (folder / "rewards.py").write_text(code, encoding="utf-8")
    task = {"prompts": "prompts.txt", "proxy": "rewards.py:proxy", "gold": "rewards.py:gold"}
    return {**minimal(), "task": task}


def write(folder: Path, spec: object) -> Path:
    """Write a spec; JSON is YAML."""
    path = folder / "spec.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def problems_of(folder: Path, spec: object, *overrides: str) -> list[str]:
    """The lines of the refusal, indentation gone; empty if the spec is accepted."""
    try:
        load_spec(write(folder, spec), overrides)
    except SpecError as error:
        return [line.strip() for line in str(error).splitlines()[1:]]
    return []
