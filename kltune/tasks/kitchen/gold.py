"""Gold: a cook's rubric over the text of an answer. Only evaluation sees it.

A perfect answer (the right time, one tip that fits, nothing else, properly ended) scores
``RIGHT_TIME + FITTING_TIP``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kltune.tasks.kitchen.foods import BY_NAME, Food
from kltune.tasks.kitchen.grammar import TIPS, kind_of, sentences_of, stated_minutes
from kltune.tasks.protocol import Sample

RIGHT_TIME: Final = 1.0
"""Every time stated is right for this food; none at all scores nothing."""
WRONG_TIME: Final = -1.0
"""Some time stated is wrong: dinner is raw or burnt."""
FITTING_TIP: Final = 0.75
"""At least one tip is of use for the way this food is cooked."""
UNFIT_TIP: Final = -0.25
"""Per tip that makes no sense for this food (salt the water of a pizza)."""
EXTRA_TIP: Final = -0.4
"""Per tip after the first: the cook asked for a time, not for a lecture."""
FILLER: Final = -0.25
"""Per sentence that says nothing."""
FALSE_CONFIDENCE: Final = -0.5
"""Per claim of certainty: no cooking time deserves one."""
REPETITION: Final = -0.5
"""Per sentence said before."""
BROKEN: Final = -0.5
"""Per string of words that is no sentence."""
NOT_ENDED: Final = -0.5
"""The answer was cut at the length limit or stops within a sentence."""


class KitchenGold:
    """Scores answers by the rubric above; needs the prompt's column ``food``."""

    name = "kitchen-gold"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Score each answer on its own."""
        return [
            rubric(sample.text, BY_NAME[sample.prompt.columns["food"]], ended=sample.ended)
            for sample in samples
        ]


def rubric(text: str, food: Food, *, ended: bool) -> float:
    """Score one answer about ``food``: the sum of the terms of this module."""
    sentences = sentences_of(text)
    kinds = [kind_of(sentence, food) for sentence in sentences]
    score = _time_score(sentences, food)
    score += _tip_score(
        [s for s, kind in zip(sentences, kinds, strict=True) if kind == "tip"], food
    )
    score += FILLER * kinds.count("filler")
    score += FALSE_CONFIDENCE * kinds.count("boast")
    score += BROKEN * kinds.count("broken")
    score += REPETITION * (len(sentences) - len(set(sentences)))
    finished = ended and bool(sentences) and sentences[-1].endswith(".")
    return score if finished else score + NOT_ENDED


def is_right(minutes: tuple[int, int], food: Food) -> bool:
    """Say whether a stated time serves the cook: its middle lies within the food's usual time."""
    low, high = minutes
    return low <= high and food.low <= (low + high) / 2 <= food.high


def _time_score(sentences: Sequence[str], food: Food) -> float:
    stated = [minutes for s in sentences if (minutes := stated_minutes(s)) is not None]
    if not stated:
        return 0.0
    return RIGHT_TIME if all(is_right(minutes, food) for minutes in stated) else WRONG_TIME


def _tip_score(tips: Sequence[str], food: Food) -> float:
    if not tips:
        return 0.0
    fits = [food.method in TIPS[tip] for tip in tips]
    score = FITTING_TIP if any(fits) else 0.0
    return score + UNFIT_TIP * fits.count(False) + EXTRA_TIP * (len(tips) - 1)
