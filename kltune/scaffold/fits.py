"""A draft whose sizes came from a large run in, the same with sizes that its model has room for out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final

from kltune.scaffold.draft import SpecDraft
from kltune.scaffold.start import Answers
from kltune.spec.model import BUILTIN_MODELS

_PACKAGE: Final = Path(__file__).parents[1]


def fit_horizon(draft: SpecDraft) -> SpecDraft:
    """With the searched horizons as many steps long as they are at 64 completions per step: 1 to 100."""
    sizes = (draft.get("trainer.prompts"), draft.get("trainer.group_size"))
    counts = [line.value for line in sizes if line is not None and isinstance(line.value, int)]
    old = draft.get("search.horizon")
    if len(counts) < 2 or old is None or not isinstance(old.value, Mapping):
        return draft
    rows = prod(counts)
    return draft.put("search.horizon", {**old.value, "log": [rows, 100 * rows]}, old.comment)


def fit_updates(draft: SpecDraft) -> SpecDraft:
    """With k3's loss corrected for the policy that sampled, where a rollout has several updates."""
    counts = [draft.get(f"trainer.{name}") for name in ("epochs", "minibatches")]
    several = any(line is not None and line.value not in (None, 1) for line in counts)
    old = draft.get("search.penalty")
    if not several or old is None:
        return draft
    choice = ["k1-reward", "k2-loss", "wk3-loss"]
    words = f"{old.comment}; w: weighted by the ratio to the policy that sampled"
    return draft.put("search.penalty", {"choice": choice}, words)


def fit_lengths(draft: SpecDraft, answers: Answers, spec_path: Path) -> SpecDraft:
    """With completions that leave a prompt its room within the model's positions; said where that is shorter."""
    positions = _positions(draft, answers, spec_path)
    old = draft.get("trainer.max_new_tokens")
    if positions is None or old is None or not isinstance(old.value, int):
        return draft
    longest = answers.preset.prompt_tokens
    room = positions // 2 if longest is None else positions - longest
    if old.value <= room:
        return draft
    why = f"the model has {positions} positions, prompts included"
    draft = draft.put("trainer.max_new_tokens", room, f"not {old.value}: {why}")
    return draft.warn(f"trainer.max_new_tokens: {room} instead of {old.value}: {why}")


def _positions(draft: SpecDraft, answers: Answers, spec_path: Path) -> int | None:
    """Of the draft's model; None where only loading it would tell."""
    line = draft.get("model.base")
    base = "" if line is None else str(line.value)
    if base == answers.preset.model and answers.preset.positions is not None:
        return answers.preset.positions
    name = base.removeprefix("builtin:")
    folder = spec_path.absolute().parent / Path(base).expanduser()
    if name != base and name in BUILTIN_MODELS:
        folder = _PACKAGE / BUILTIN_MODELS[name]
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = config.get("max_position_embeddings") if isinstance(config, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return found if isinstance(found, int) and found > 1 else None
