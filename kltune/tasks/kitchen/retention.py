"""Completions in, a further gold out: how much of the base's well-formed language an answer keeps.

    retention = distinct sound sentences / sentences

A sentence is sound where the grammar has it (right or wrong, useful or vague: that is gold's
business); said again it adds nothing. An answer that was cut at the length limit counts as one
sentence more, unless its last piece is broken anyway. 1 is a clean answer, 0 one without a
sound sentence. A policy that runs after its reward loses this before anything else.
"""

from __future__ import annotations

from collections.abc import Sequence

from kltune.tasks.kitchen.foods import BY_NAME, Food
from kltune.tasks.kitchen.grammar import kind_of, sentences_of
from kltune.tasks.protocol import Sample


class KitchenRetention:
    """Scores answers by the share above, 0 to 1; needs the prompt's column ``food``."""

    name = "kitchen-retention"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Score each answer on its own."""
        return [
            sound_share(sample.text, BY_NAME[sample.prompt.columns["food"]], ended=sample.ended)
            for sample in samples
        ]


def sound_share(text: str, food: Food, *, ended: bool) -> float:
    """Score one answer about ``food``: the formula of this module."""
    sentences = sentences_of(text)
    if not sentences:
        return 0.0
    sound = {sentence for sentence in sentences if kind_of(sentence, food) != "broken"}
    is_cut_between = not ended and sentences[-1].endswith(".")
    return len(sound) / (len(sentences) + is_cut_between)
