"""A stand-in that costs nothing."""

from __future__ import annotations

from kltune.rewards.unasked import Unasked
from kltune.tasks.protocol import Prompt, Sample


def test_it_scores_every_text_and_tells_most_apart() -> None:
    prompt = Prompt("p", "q")
    texts = ("", "b", "c", "d")
    scores = Unasked("m")([Sample(prompt, text, (), True) for text in texts])
    assert scores[0] == 0
    assert len(set(scores)) == 4
