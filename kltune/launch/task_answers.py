"""A task in, completions to try its scorers on out: from a file, from the model, or harmless texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

from kltune.errors import SpecError
from kltune.tasks.calls_probe import TEXTS
from kltune.tasks.protocol import Prompt, Sample, Splits

_TRUTHS: Final = ("answer", "ground_truth", "solution", "label", "target")
"""Columns that hold the right answer by custom: it is tried as an answer."""


def harmless_answers(splits: Splits, count: int) -> list[Sample]:
    """``count`` answers to prompts of select: texts that say nothing, and the right one where a column holds it."""
    found: list[Sample] = []
    for prompt in splits.select:
        held = [prompt.columns[name] for name in _TRUTHS if name in prompt.columns]
        truths = [str(truth) for truth in held if isinstance(truth, str | int | float)]
        texts = (*TEXTS[:2], truths[0]) if truths else TEXTS
        found += [_sample(prompt, text) for text in texts]
    return found[:count]


def answers_of_file(path: Path, splits: Splits, count: int | None) -> list[Sample]:
    """Completions of a file: .jsonl (``completion``, and ``prompt`` or ``prompt_id``), or text, one a line.

    Without a prompt a completion answers the next prompt of select, in order.

    Raises:
        SpecError: the file can't be read, or a line names no prompt of the task; by line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"--completions: {path} can't be read: {error}") from error
    prompts = (*splits.select, *splits.train, *splits.test)
    known = {**{p.text: p for p in prompts}, **{p.id: p for p in prompts}}
    found: list[Sample] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (count is not None and len(found) == count):
            continue
        default = splits.select[len(found) % len(splits.select)]
        if path.suffix == ".jsonl":
            found.append(_parsed(line, f"--completions: {path}, line {number}", known, default))
        else:
            found.append(_sample(default, line))
    if not found:
        raise SpecError(f"--completions: {path} holds no completions")
    return found


def _parsed(line: str, place: str, known: dict[str, Prompt], default: Prompt) -> Sample:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise SpecError(f"{place}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise SpecError(f'{place}: must be an object like {{"completion": "..."}}')
    fields = cast("dict[str, Any]", row)
    text = fields.get("completion")
    if not isinstance(text, str):
        there = ", ".join(fields) or "none"
        raise SpecError(f"{place}: field 'completion' must be text (fields here: {there})")
    key = fields.get("prompt_id", fields.get("prompt"))
    if key is not None and key not in known:
        raise SpecError(f"{place}: the task has no prompt {str(key)[:60]!r}")
    return _sample(default if key is None else known[key], text)


def _sample(prompt: Prompt, text: str) -> Sample:
    # Tokens are the model's; none is loaded here, so that words stand for them.
    return Sample(prompt, text, tuple(range(1, 1 + len(text.split()))), ended=True)
