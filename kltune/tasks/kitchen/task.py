"""The kitchen task: prompts split by food, and where the shipped weights lie.

Torch-free; the base and the learned reward are loaded by whoever needs them from ``BASE``
and ``REWARD``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from kltune.tasks.kitchen.foods import FOODS, Food
from kltune.tasks.kitchen.grammar import QUESTIONS, question
from kltune.tasks.kitchen.retention import KitchenRetention
from kltune.tasks.protocol import Prompt, Scorer, Splits

Size = Literal["small", "medium", "large"]

NAME: Final = "kitchen"
WEIGHTS: Final = Path(__file__).parent / "weights"
FOLDERS: Final[Mapping[Size, str]] = MappingProxyType(
    {"small": "base-small", "medium": "base", "large": "base-large"}
)
"""Where the base of each size lies in ``WEIGHTS``; tokenizer and training text are the same."""
BASE: Final = WEIGHTS / FOLDERS["medium"]
REWARD: Final = WEIGHTS / "reward"
MAX_NEW_TOKENS: Final = 32
GOLDS: Final[Mapping[str, Scorer]] = MappingProxyType({"retention": KitchenRetention()})
"""Further judgements that a spec may name."""

# Foods are listed method by method, so counting in fives gives every split foods of each.
_CYCLE: Final = 5
_SELECT: Final = 3
_TEST: Final = 4


def splits() -> Splits:
    """Split by food, 40 to train, 13 to select, 13 to test; each food in all wordings."""
    places = list(enumerate(FOODS))
    return Splits(
        train=_prompts([food for i, food in places if i % _CYCLE not in (_SELECT, _TEST)]),
        select=_prompts([food for i, food in places if i % _CYCLE == _SELECT]),
        test=_prompts([food for i, food in places if i % _CYCLE == _TEST]),
    )


def _prompts(foods: Sequence[Food]) -> tuple[Prompt, ...]:
    # Wordings outermost: the first n prompts of a split then cover as many foods as they can.
    return tuple(
        Prompt(
            id=f"{food.name.replace(' ', '-')}-{wording}",
            text=question(food, wording),
            columns={"food": food.name},
        )
        for wording in range(len(QUESTIONS))
        for food in foods
    )
