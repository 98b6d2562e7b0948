"""Answers in; out: the files that a new task needs and that are not there yet, with worked examples in them.

A bare name is looked for, and made, beside the spec; a name with a folder from the current folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kltune.scaffold.start import LEARNED, Answers

PROMPTS: Final = (
    {"prompt": "How long do I boil an egg?", "minutes": 8, "split": "train"},
    {"prompt": "How long do I cook spaghetti?", "minutes": 10, "split": "train"},
    {"prompt": "How long do I steep green tea?", "minutes": 3, "split": "select"},
    {"prompt": "How long do I blanch spinach?", "minutes": 2, "split": "select"},
    {"prompt": "How long do I bake a loaf of bread?", "minutes": 35, "split": "test"},
    {"prompt": "How long do I simmer lentils?", "minutes": 25, "split": "test"},
)
"""Two of each split, the fewest that kltune takes; `minutes` goes to the scorers as a column."""

_HEAD: Final = '''"""The scorers of {spec}: completions in, one number per completion out; higher is better.

Each gets lists of equal length: `completions`, `prompts`, and every further column of the prompts' file
by its name. A proxy may return None for what it can't score; gold must always score.
"""

from __future__ import annotations
'''
_GOLD: Final = '''

def {name}(completions, {column}**columns):
    """What judges, on prompts that training never saw: replace it by what you really want."""
    {body}
'''
_GOLD_BODY: Final = """# An example: 1 where the right number stands in the answer.
    return [float(str(right) in text) for text, right in zip(completions, minutes, strict=True)]"""
_PLAIN_BODY: Final = """# An example: 1 where the answer ends with a full stop.
    return [float(text.strip().endswith(".")) for text in completions]"""
_PROXY: Final = '''

def {name}(completions, **columns):
    """What training optimises: replace it by your reward."""
    # An example with a flaw, as rewards have: up to 20 words, longer is better, right or wrong.
    return [min(len(text.split()), 20) / 20 for text in completions]
'''


def locate(text: str, spec_path: Path) -> Path:
    """Where a file named in the spec is, or would be made; absolute, or below the current folder."""
    path = Path(text).expanduser()
    beside = spec_path.parent / path
    if path.is_absolute() or path.exists():
        return path
    return beside if beside.exists() or len(path.parts) == 1 else path


def missing_files(answers: Answers, spec_path: Path) -> dict[Path, str]:
    """Path and text of each file that a task of one's own names, that is absent, and that can be made.

    Those are a .jsonl of prompts and .py files of scorers.
    """
    if answers.task is not None:
        return {}
    files: dict[Path, str] = {}
    prompts = locate(answers.prompts, spec_path)
    is_new = prompts.suffix == ".jsonl" and not prompts.exists()
    if is_new:
        files[prompts] = "".join(f"{json.dumps(row)}\n" for row in PROMPTS)
    for path, bodies in _functions(answers, spec_path, is_new=is_new).items():
        files[path] = _HEAD.format(spec=spec_path.name) + "".join(bodies.values())
    return files


def grounded(answers: Answers, places: Mapping[Path, Path], spec_path: Path) -> Answers:
    """The same answers with every file by its absolute path, those in ``places`` where their stand-ins are."""

    def real(text: str) -> str:
        path = locate(text, spec_path)
        return str(places.get(path, path).absolute())

    def function(text: str) -> str:
        source, colon, name = text.rpartition(":")
        return f"{real(source)}{colon}{name}" if source.endswith(".py") else text

    if answers.task is not None:
        return answers
    proxy = answers.scorer
    return replace(
        answers,
        prompts=real(answers.prompts),
        gold=function(answers.gold),
        proxy=proxy if proxy == LEARNED else function(proxy),
    )


def _functions(answers: Answers, spec_path: Path, *, is_new: bool) -> dict[Path, dict[str, str]]:
    """File -> function's name -> its text, for absent files."""
    found: dict[Path, dict[str, str]] = {}
    column, body = ("minutes, ", _GOLD_BODY) if is_new else ("", _PLAIN_BODY)
    for function in answers.functions:
        source, _, name = function.rpartition(":")
        path = locate(source, spec_path)
        if not source.endswith(".py") or path.exists() or not name.isidentifier():
            continue
        if function == answers.gold:
            text = _GOLD.format(name=name, column=column, body=body)
        else:
            text = _PROXY.format(name=name)
        found.setdefault(path, {})[name] = text
    return found
