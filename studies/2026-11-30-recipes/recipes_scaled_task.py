"""The built-in task as one of the user's own, so that its proxy can be given a weight: the spec's section, and prompts.

A built-in task takes no weight. Weights that are powers of two round nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

from kltune.tasks.kitchen import task as kitchen

PROMPTS = "kitchen.jsonl"
"""The built-in task's prompts in their order: id, prompt, food, split. :func:`write_prompts` made it."""
SCORERS = "recipes_scaled.py"


def scaled_task(weight: float) -> dict[str, object]:
    """The spec's section ``task``: the built-in one, its proxy times ``weight``."""
    return {
        "prompts": PROMPTS,
        "proxy": {"weighted": [{"reward": f"{SCORERS}:proxy", "weight": weight}]},
        "gold": f"{SCORERS}:gold",
    }


def write_prompts(path: Path) -> None:
    """The built-in task's prompts, one a line."""
    splits = kitchen.splits()
    rows = [
        {"id": prompt.id, "prompt": prompt.text, **prompt.columns, "split": name}
        for name in ("train", "select", "test")
        for prompt in getattr(splits, name)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
