"""A task of the user's own, small enough for a sweep of seconds: prompts, a file of scorers, and the spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def own_spec(folder: Path, scorers: str, **task: Any) -> Path:
    """Write ``own.yaml``: gold and proxy are functions of those names in ``scorers``, unless ``task`` says otherwise."""
    (folder / "rewards.py").write_text(scorers, encoding="utf-8")
    (folder / "prompts.txt").write_text(
        "".join(f"how long does rice take , version {i} ?\n" for i in range(24)), encoding="utf-8"
    )
    spec = {
        "name": "own",
        "task": {
            "prompts": "prompts.txt",
            "gold": "rewards.py:gold",
            "proxy": "rewards.py:proxy",
            **task,
        },
        "model": {"base": "builtin:kitchen"},
        "trainer": {"steps": 4, "prompts": 2, "group_size": 4, "max_new_tokens": 12},
        "search": {"beta": {"log": [0.01, 1]}},
        "evaluate": {"every": 2, "prompts": 4, "samples": 1},
        "budget": {"trials": 3},
        "tracking": {"enabled": False},
    }
    path = folder / "own.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path
