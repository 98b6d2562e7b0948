"""The name of a new task and its kind in, its files out: prompts, scorers and a spec that can be checked at once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, Literal

from kltune.scaffold.draft import SpecDraft, render
from kltune.scaffold.start import LEARNED, Answers, start_draft
from kltune.tasks.kitchen.foods import FOODS, Food
from kltune.tasks.kitchen.grammar import question

Kind = Literal["function", "verl", "model"]

PROMPTS: Final = "prompts.jsonl"
REWARDS: Final = "rewards.py"
SPEC: Final = "spec.yaml"
_SPLITS: Final = ("train", "train", "select", "test")
_COUNT: Final = 32

_HEAD: Final = '''"""The scorers of the task {name}: completions in, one number per completion out; higher is better.

Try them: kltune task test {folder}/spec.yaml
"""

from __future__ import annotations

import re


def minutes_in(text):
    """The first number of an answer; none where it has none."""
    found = re.search(r"\\d+", text)
    return None if found is None else int(found[0])
'''
_TRL_GOLD: Final = '''

def gold(completions, low, high, **columns):
    """What judges, on prompts that training never saw: replace it by what you really want.

    Each argument is a list with an entry per completion; `low` and `high` are columns of the prompts.
    Gold gives a number to every completion, also to one that it can't read.
    """
    return [
        float(minutes_in(text) is not None and first <= minutes_in(text) <= last)
        for text, first, last in zip(completions, low, high, strict=True)
    ]
'''
_TRL_PROXY: Final = '''

def proxy(prompts, completions, **columns):
    """What training optimises: replace it by your reward, for example one written for TRL.

    This one has a flaw, as rewards have: any number of minutes counts half, longer answers the rest.
    It may return None for a completion that it can't score, and may be `async def`.
    """
    return [
        0.5 * (minutes_in(text) is not None) + 0.5 * min(len(text.split()), 12) / 12
        for text in completions
    ]
'''
_VERL: Final = '''

def gold(data_source, solution_str, ground_truth, extra_info=None):
    """What judges, on prompts that training never saw; called once per completion, as by verl."""
    minutes = minutes_in(solution_str)
    return float(minutes is not None and ground_truth[0] <= minutes <= ground_truth[1])


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """What training optimises: put your own compute_score here, unchanged.

    A number, or {"score": number, ...}. This one has a flaw: any number of minutes counts half.
    """
    length = min(len(solution_str.split()), 12) / 12
    return {"score": 0.5 * (minutes_in(solution_str) is not None) + 0.5 * length}
'''


def task_files(name: str, folder: str, kind: Kind) -> dict[str, str]:
    """Text of each file of the new task, by its name in the folder."""
    foods = FOODS[:: max(1, len(FOODS) // _COUNT)][:_COUNT]
    rows = [_row(food, _SPLITS[i % len(_SPLITS)], kind) for i, food in enumerate(foods)]
    bodies = {
        "function": _TRL_GOLD + _TRL_PROXY,
        "verl": _VERL,
        "model": _TRL_GOLD,
    }
    return {
        PROMPTS: "".join(f"{json.dumps(row)}\n" for row in rows),
        REWARDS: _HEAD.format(name=name, folder=folder) + bodies[kind],
        SPEC: render(draft_of(name, kind)),
    }


def draft_of(name: str, kind: Kind) -> SpecDraft:
    """The spec, on the built-in model, so that it runs before anything is replaced."""
    proxies = {
        "function": f"{REWARDS}:proxy",
        "verl": f"{REWARDS}:compute_score",
        "model": LEARNED,
    }
    answers = Answers(
        name=name,
        task=None,
        prompts=PROMPTS,
        gold=f"{REWARDS}:gold",
        proxy=proxies[kind],
        model="builtin:kitchen",
    )
    title = f"Which KL setting holds gold up on {name}? Written by `kltune task new`."
    draft = replace(start_draft(answers), title=title)
    draft = draft.put("model.base", "builtin:kitchen", "to try it: put your own model here")
    return draft.put("trainer.learning_rate", 3e-3, "AdamW step size of the adapters")


def _row(food: Food, split: str, kind: Kind) -> dict[str, Any]:
    row: dict[str, Any] = {"prompt": question(food, 0), "split": split}
    if kind == "verl":
        return {**row, "data_source": "kitchen", "ground_truth": [food.low, food.high]}
    return {**row, "low": food.low, "high": food.high}
